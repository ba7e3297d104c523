"""How many tokens a model takes: from its name, its server's lists or an error, and what to believe."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

# "gpt-4-32k", "yi-34b-200k": k is 1,000, the smaller of its two meanings. "-1m" and "-2m" are windows;
# larger numbers before an m are parameter counts.
_THOUSANDS = re.compile(r"(?<![a-z0-9.])(\d{1,4})k(?![a-z0-9])")
_MILLIONS = re.compile(r"(?<![a-z0-9.])([12])m(?![a-z0-9])")

# Published windows, as of 2025. The first family found in the name decides: specific names come first.
_FAMILIES_TEXT = """
    claude 200_000
    gpt-5 272_000
    gpt-4.1 1_047_576
    gpt-4.5 128_000
    gpt-4o 128_000
    chatgpt-4o 128_000
    gpt-4-turbo 128_000
    gpt-4-1106 128_000
    gpt-4-0125 128_000
    gpt-4 8_192
    gpt-3.5-turbo-instruct 4_096
    gpt-3.5 16_385
    gpt-oss 131_072
    gemini-1.5-pro 2_097_152
    gemini 1_048_576
    deepseek 64_000
    llama-4 131_072
    llama-3.1 131_072
    llama-3.2 131_072
    llama-3.3 131_072
    llama3.1 131_072
    llama3.2 131_072
    llama3.3 131_072
    llama-3 8_192
    llama3 8_192
    llama-2 4_096
    qwen3 32_768
    qwen2 32_768
    mistral-large 131_072
    mistral-nemo 131_072
    mixtral 32_768
    mistral 32_768
    command-r 128_000
    gemma-3 131_072
    gemma3 131_072
    gemma 8_192
    grok 131_072
    kimi-k2 131_072
"""
_FAMILIES = tuple(line.split() for line in _FAMILIES_TEXT.strip().splitlines())
_REASONERS = re.compile(r"(?:^|[/:])o[134](?:$|-)")
_REASONER_WINDOW = 200_000
_O1_SMALL = re.compile(r"(?:^|[/:])o1-(?:mini|preview)")
_O1_SMALL_WINDOW = 128_000

# The served window before the trained one: a local server often runs with less than the model supports.
_KEYS = (
    "max_model_len",
    "loaded_context_length",
    "n_ctx",
    "max_input_tokens",
    "context_window",
    "context_length",
    "max_context_length",
    "max_context_tokens",
    "context_size",
    "n_ctx_train",
)
_NESTED = ("top_provider", "default_generation_settings", "meta", "details", "model_info", "limits", "limit")
_LISTS = ("data", "models")
# Tokens; a number outside is not a window.
_LEAST, _MOST = 256, 100_000_000


def window_from_name(model: str) -> int | None:
    """The likely window of a model of this name in tokens; None when the name does not tell (A04)."""
    name = model.lower()
    if found := _THOUSANDS.search(name):
        return int(found[1]) * 1_000
    if found := _MILLIONS.search(name):
        return int(found[1]) * 1_000_000
    if _O1_SMALL.search(name):
        return _O1_SMALL_WINDOW
    if _REASONERS.search(name):
        return _REASONER_WINDOW
    return next((int(tokens) for family, tokens in _FAMILIES if family in name), None)


def window_from_models_payload(payload: object, model: str) -> int | None:
    """The window that a server states for `model`, from any known shape of a models answer.

    Supports lists under `data` or `models` and bare lists (vLLM, OpenRouter, Groq, Mistral, LM Studio,
    llama.cpp), a single model object, and llama.cpp's `/props`. An entry is the model's when its id is the
    name, or ends in it after a slash. A server that lists only one model serves it under any name. None when
    no window is stated.
    """
    entries = _entries(payload)
    if entries is None:
        return _window_of(payload)
    for entry in entries:
        if isinstance(entry, Mapping):
            aliases = entry.get("aliases")
            names = [entry.get(key) for key in ("id", "name", "model", "canonical_slug")]
            for name in [*names, *(aliases if isinstance(aliases, list) else ())]:
                is_named = isinstance(name, str) and name
                if is_named and (f"/{model}".endswith(f"/{name}") or name.endswith(f"/{model}")):
                    return _window_of(entry)
    return _window_of(entries[0]) if len(entries) == 1 else None


def _entries(payload: object) -> list[object] | None:
    if isinstance(payload, Sequence) and not isinstance(payload, str | bytes):
        return list(payload)
    if not isinstance(payload, Mapping):
        return None
    # llama.cpp sends both lists; only `data` has `meta`.
    for key in _LISTS:
        value = payload.get(key)
        if isinstance(value, list):
            return list(value)
        if isinstance(value, Mapping):
            return [value]
    return None


def _window_of(entry: object) -> int | None:
    objects: list[Mapping[object, object]] = []
    if isinstance(entry, Mapping):
        nested = (entry.get(key) for key in _NESTED)
        objects = [entry, *(each for each in nested if isinstance(each, Mapping))]
    for key in _KEYS:
        found = [n for n in (_tokens(obj.get(key)) for obj in objects) if n is not None]
        if found:
            return min(found)
    # Ollama's model_info names the key after the architecture: "llama.context_length".
    for obj in objects:
        for name, value in obj.items():
            if isinstance(name, str) and name.endswith(".context_length") and (n := _tokens(value)):
                return n
    return None


def _tokens(value: object) -> int | None:
    number = int(value[:12]) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    return int(number) if _LEAST <= number <= _MOST else None


# llama.cpp's first default; no window in use is smaller, tokens.
LEAST_TOKENS = 512
# A refused prompt is larger than the window; another tokenizer may count only half as much.
_SLACK = 2.0
# Two callers found the same window when their figures differ by no more than this share.
_ALIKE = 0.05
# Servers restart with other settings, and gateways change what they route to, within days. Learning a window
# again costs one refused request.
LIFE_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class LearnedTokens:
    """A window in the model's tokens: "overflow" from a refusal, "observed" from truncated prompts."""

    tokens: int
    source: Literal["overflow", "observed"]
    at: float

    def is_fresh(self, now: float) -> bool:
        """True until it is too old to be believed."""
        return now - self.at < LIFE_SECONDS


def is_credible(tokens: int, needed: float, answered: int) -> bool:
    """True when a prompt of `needed` tokens, its answer included, may have exceeded this window.

    `answered` is the largest prompt that the model has answered, from any caller: no window is below it.
    """
    return tokens >= LEAST_TOKENS and tokens > answered and tokens <= _SLACK * needed


def confirmed(learned: Iterable[LearnedTokens]) -> LearnedTokens | None:
    """The largest window on which at least two of these agree, each from another caller; else None."""
    ordered = sorted(learned, key=lambda one: one.tokens, reverse=True)
    for one, next_one in pairwise(ordered):
        if one.tokens - next_one.tokens <= _ALIKE * one.tokens:
            return one
    return None
