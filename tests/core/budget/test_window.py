from typing import Any

import pytest
from palimpsest.core.budget.window import window_from_models_payload, window_from_name


@pytest.mark.spec("A04")
@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("claude-sonnet-4-20250514", 200_000),
        ("anthropic/claude-3.5-haiku", 200_000),
        ("gpt-4o-mini", 128_000),
        ("gpt-4.1-nano", 1_047_576),
        ("gpt-4", 8_192),
        ("gpt-4-32k", 32_000),
        ("gpt-3.5-turbo-16k", 16_000),
        ("openai/o3-mini", 200_000),
        ("o1-mini", 128_000),
        ("yi-34b-200k", 200_000),
        ("phi-3-mini-4k-instruct", 4_000),
        ("qwen2.5-7b-instruct-1m", 1_000_000),
        ("meta-llama/Llama-3.1-8B-Instruct", 131_072),
        ("llama-3-8b", 8_192),
        ("gemini-2.5-flash", 1_048_576),
        ("pythia-70m", None),
        ("gpt2-scratch", None),
        ("my-model", None),
        ("", None),
    ],
)
def test_a_name_tells_the_window(model: str, tokens: int | None) -> None:
    assert window_from_name(model) == tokens


LLAMA_CPP: dict[str, Any] = {
    "models": [{"name": "/models/q.gguf", "details": {"family": ""}}],
    "object": "list",
    "data": [{"id": "/models/q.gguf", "object": "model", "meta": {"n_vocab": 32000, "n_ctx_train": 32768}}],
}


@pytest.mark.parametrize(
    ("payload", "tokens"),
    [
        ({"data": [{"id": "other", "max_model_len": 1024}, {"id": "m", "max_model_len": 8192}]}, 8192),
        ({"data": [{"id": "org/m", "context_length": 65536}, {"id": "x", "context_length": 1024}]}, 65536),
        (
            {"data": [{"id": "m", "context_length": 200000, "top_provider": {"context_length": 128000}}]},
            128000,
        ),
        ({"data": [{"id": "m", "context_window": 131072}]}, 131072),
        ({"data": [{"id": "m", "max_context_length": 32768, "loaded_context_length": 4096}]}, 4096),
        ([{"id": "m", "n_ctx": 2048}], 2048),
        ({"id": "m", "max_model_len": "4096"}, 4096),
        (LLAMA_CPP, 32768),
        ({"data": [{"id": "any", "meta": {"n_ctx": 4096, "n_ctx_train": 32768}}]}, 4096),
        ({"default_generation_settings": {"n_ctx": 16384}}, 16384),
        ({"model_info": {"llama.context_length": 8192}}, 8192),
        ({"data": [{"id": "a", "n_ctx": 2048}, {"id": "b", "n_ctx": 4096}]}, None),
        ({"data": [{"id": "m"}]}, None),
        ({"data": []}, None),
        ({"data": [{"id": "m", "context_length": True}]}, None),
        ({"data": [{"id": "m", "context_length": 0}]}, None),
        ({"data": ["m", None, 3]}, None),
        ("nonsense", None),
        (None, None),
    ],
)
def test_a_models_answer_tells_the_window(payload: object, tokens: int | None) -> None:
    assert window_from_models_payload(payload, "m") == tokens
