"""The read-out against a softmax in double precision."""

from __future__ import annotations

import numpy as np
import pytest

from memory.search.attention import read_out


@pytest.mark.parametrize("dim", [1, 5, 16, 64, 256, 300])
@pytest.mark.parametrize("count", [1, 2, 17, 130])
@pytest.mark.parametrize("sharpness", [1.0, 8.0, 50.0])
def test_it_is_attention(dim: int, count: int, sharpness: float) -> None:
    random = np.random.default_rng(dim * count)
    vectors = random.standard_normal((count, dim))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    query = random.standard_normal(dim)
    query /= np.linalg.norm(query)
    scores = sharpness * vectors @ query
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    found = read_out(query.astype(np.float32), vectors.astype(np.float32), sharpness=sharpness)
    np.testing.assert_allclose(found.weights, weights, atol=1e-5, rtol=1e-3)
    np.testing.assert_allclose(found.context, weights @ vectors, atol=1e-5)
    assert found.weights.sum() == pytest.approx(1.0, abs=1e-5)
    assert found.context.dtype == found.weights.dtype == np.float32


def test_without_vectors_it_is_zero() -> None:
    found = read_out(np.ones(4, np.float32), np.zeros((0, 4), np.float32))
    assert found.context.tolist() == [0.0] * 4
    assert len(found.weights) == 0


def test_arrays_that_cannot_be_written_to_are_taken() -> None:
    vectors = np.frombuffer(np.eye(16, dtype=np.float32).tobytes(), np.float32).reshape(16, 16)
    query = vectors[3]
    assert not query.flags.writeable
    found = read_out(query, vectors)
    assert found.weights.argmax() == 3
    assert read_out(query, vectors.astype(np.float16)).weights.argmax() == 3
