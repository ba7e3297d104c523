"""The real weights give what PyTorch gives with them (transformers 5, torch 2.13, 2026-11)."""

from __future__ import annotations

import pytest
from palimpsest.embedding.minilm import Embedder
from palimpsest.embedding.weights import PACKAGE

from tests.realmodel.fetch import model_folder

pytestmark = pytest.mark.realmodel

# The first numbers of a text's vector, and the sum of all.
RECORDED = {
    "Last Saturday I painted the rowing boat in green.": (
        [0.021236, 0.087771, 0.059973, -0.014725, 0.039669, -0.052067, -0.00675, -0.022441],
        0.11117,
    ),
    "What did Zoë pay for the café's 2 lamps?": (
        [-0.029071, 0.010838, 0.037399, -0.004274, -0.008984, 0.019096, 0.096737, -0.012599],
        0.25802,
    ),
    "日本語 and émigré: naïve—co-operate!": (
        [-0.007057, -0.001463, 0.043225, -0.024754, -0.036702, 0.010963, 0.059136, -0.025861],
        -0.08678,
    ),
    "": (
        [-0.118838, 0.048299, -0.002548, -0.011011, 0.051951, 0.010292, 0.115433, 0.000701],
        0.62907,
    ),
    # More than the 256 word pieces that are read.
    "word " * 600: (
        [-0.008124, -0.095586, -0.038673, 0.049662, -0.043794, 0.02372, -0.018142, -0.020207],
        -0.78597,
    ),
}


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder(model_folder() / PACKAGE / "model")


@pytest.mark.parametrize("text", RECORDED, ids=lambda text: text[:12])
def test_a_vector_is_pytorchs(embedder: Embedder, text: str) -> None:
    first, total = RECORDED[text]
    vector = embedder.vector(text)
    assert vector.shape == (384,)
    assert vector[:8].tolist() == pytest.approx(first, abs=2e-6)
    assert float(vector.sum()) == pytest.approx(total, abs=2e-5)


def test_meaning_is_told_from_words(embedder: Embedder) -> None:
    kept = [embedder.packed(text) for text in ("We went rowing on the lake.", "The invoice is overdue.")]
    assert [len(each) for each in kept] == [384, 384]
    boating, billing = embedder.cosines("boat trip", kept)
    assert boating > 0.4 > 0.2 > billing
