"""The model's arithmetic and its files; what the real weights give is in tests/realmodel."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from palimpsest.embedding.minilm import Embedder
from palimpsest.embedding.weights import weights_folder
from palimpsest.errors import SettingsError

from tests.kit.tiny_model import HEADS, LAYERS, SIZE, SPECIAL, UNREADABLE, tiny_package


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_package(tmp_path)


def tensor(model: Path, name: str) -> NDArray[np.float64]:
    """Read with nothing but the format's own description."""
    data = (model / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    told = json.loads(data[8:start])[name]
    first, end = told["data_offsets"]
    return np.frombuffer(data[start + first : start + end], "<f4").reshape(told["shape"]).astype(float)


Rows = list[list[float]]


def dense(model: Path, rows: Rows, name: str) -> Rows:
    weight, bias = tensor(model, f"{name}.weight"), tensor(model, f"{name}.bias")
    return [
        [sum(w * x for w, x in zip(line, row, strict=True)) + b for line, b in zip(weight, bias, strict=True)]
        for row in rows
    ]


def normed(model: Path, rows: Rows, name: str) -> Rows:
    weight, bias, done = tensor(model, f"{name}.weight"), tensor(model, f"{name}.bias"), []
    for row in rows:
        mean = sum(row) / len(row)
        spread = math.sqrt(sum((x - mean) ** 2 for x in row) / len(row) + 1e-12)
        done.append([w * (x - mean) / spread + b for x, w, b in zip(row, weight, bias, strict=True)])
    return done


def attended(model: Path, rows: Rows, layer: str) -> Rows:
    part = SIZE // HEADS
    query, key, value = (
        dense(model, rows, f"{layer}attention.self.{side}") for side in ("query", "key", "value")
    )
    seen: Rows = [[] for _ in rows]
    for first in range(0, SIZE, part):
        head = slice(first, first + part)
        for at, asked in enumerate(query):
            scores = [
                math.exp(sum(x * y for x, y in zip(asked[head], k[head], strict=True)) / part**0.5)
                for k in key
            ]
            for place in range(first, first + part):
                held = sum(s * v[place] for s, v in zip(scores, value, strict=True))
                seen[at].append(held / sum(scores))
    return dense(model, seen, f"{layer}attention.output.dense")


def added(some: Rows, others: Rows) -> Rows:
    return [[x + y for x, y in zip(a, b, strict=True)] for a, b in zip(some, others, strict=True)]


def plainly(model: Path, pieces: list[int]) -> list[float]:
    """BERT as its paper has it, one number after the other, in doubles and with the exact error function."""
    word, position, kind = (
        tensor(model, f"embeddings.{name}_embeddings.weight") for name in ("word", "position", "token_type")
    )
    rows = [list(word[piece] + position[at] + kind[0]) for at, piece in enumerate(pieces)]
    rows = normed(model, rows, "embeddings.LayerNorm")
    for layer in (f"encoder.layer.{number}." for number in range(LAYERS)):
        seen = added(rows, attended(model, rows, layer))
        rows = normed(model, seen, f"{layer}attention.output.LayerNorm")
        wide = [
            [x * 0.5 * (1 + math.erf(x / math.sqrt(2))) for x in row]
            for row in dense(model, rows, f"{layer}intermediate.dense")
        ]
        done = added(rows, dense(model, wide, f"{layer}output.dense"))
        rows = normed(model, done, f"{layer}output.LayerNorm")
    mean = [sum(row[at] for row in rows) / len(rows) for at in range(SIZE)]
    length = math.sqrt(sum(x * x for x in mean))
    return [x / length for x in mean]


def test_a_vector_is_what_the_layers_come_to(model: Path) -> None:
    boat, pie = len(SPECIAL), len(SPECIAL) + 4
    expected = plainly(model, [2, boat, pie, boat, 3])
    assert Embedder(model).vector("boat PIE boat").tolist() == pytest.approx(expected, abs=2e-6)


def test_what_means_the_same_is_alike(model: Path) -> None:
    embedder = Embedder(model)
    kept = [embedder.packed(text) for text in ("my boat is green", "the pie", "a frobe")]
    assert [len(each) for each in kept] == [SIZE] * 3
    same, *others = embedder.cosines("my zorple is quindle", kept)
    assert same == pytest.approx(1, abs=0.001)
    assert max(others) < 0.8
    assert embedder.cosines("the pie", kept)[1] == pytest.approx(1, abs=0.001)


def test_of_a_long_text_the_beginning_counts(model: Path) -> None:
    embedder = Embedder(model)
    long = embedder.vector("boat " * 254 + "pie " * 5_000)
    assert long.tolist() == embedder.vector("boat " * 254).tolist()
    assert long.tolist() != embedder.vector("boat " * 253 + "pie").tolist()


@pytest.mark.parametrize("text", ["", "\ud83d", "\0 boat \x1b", "日本語"])
def test_any_text_has_a_vector(model: Path, text: str) -> None:
    assert np.linalg.norm(Embedder(model).vector(text)) == pytest.approx(1)


def test_a_word_beyond_the_table_is_an_error_of_lookup(model: Path) -> None:
    with pytest.raises(LookupError):
        Embedder(model).vector(UNREADABLE)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_files_that_are_no_model_are_refused(model: Path, file: str) -> None:
    (model / file).write_bytes(b"{}")
    with pytest.raises((OSError, ValueError, LookupError)):
        Embedder(model)


def test_the_weights_package_is_found_and_not_imported(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match="weights are missing"):
        weights_folder()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert weights_folder() == model
