"""Synthetic data and recall."""

from __future__ import annotations

import numpy as np
import pytest

from memory.index import Among
from memory.index.evaluation import clustered, recall
from memory.index.flat import FlatIndex


def test_clustered_vectors_are_units_near_their_centres() -> None:
    data = clustered(4000, 100, dim=256, centres=20, noise=0.05)
    assert data.vectors.shape == (4000, 256)
    assert data.queries.shape == (100, 256)
    assert data.vectors.dtype == data.queries.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(data.vectors, axis=1), 1.0, atol=1e-5)
    products = data.vectors[:200] @ data.vectors.T
    # Two vectors of a cluster: 1 / (1 + 256 * 0.05^2) on average; of different ones: about 0.
    assert abs(products[products > 0.4].mean() - 1 / 1.64) < 0.02
    assert abs((products > 0.4).mean() - 1 / 20) < 0.01


def test_the_seed_decides() -> None:
    first, again, other = clustered(50, 5), clustered(50, 5), clustered(50, 5, seed=1)
    assert (first.vectors == again.vectors).all()
    assert (first.queries == again.queries).all()
    assert not (first.vectors == other.vectors).all()
    with pytest.raises(ValueError, match="must not be negative"):
        clustered(-1, 5)


def test_recall_counts_true_ids() -> None:
    assert recall([[1, 2], [3, 4]], [[2, 1], [3, 9]]) == 0.75
    assert recall([[1, -1]], [[1, -1]]) == 1.0
    assert recall([[5, -1]], [[1, -1]]) == 0.0
    assert recall([[-1, -1]], [[-1, -1]]) == 1.0
    assert recall([[1, 2, 3]], [[3]]) == 1.0
    with pytest.raises(ValueError, match="one row per query"):
        recall([[1]], [[1], [2]])


def test_recall_of_half_an_index() -> None:
    data = clustered(2000, 200, dim=32, centres=10)
    exact, half = FlatIndex(32), FlatIndex(32)
    exact.add(data.vectors, np.arange(2000))
    half.add(data.vectors[::2], np.arange(0, 2000, 2))
    truth = exact.search(data.queries, 10).ids
    assert recall(truth, truth) == 1.0
    assert abs(recall(half.search(data.queries, 10).ids, truth) - 0.5) < 0.06
    among = Among(np.arange(0, 2000, 2))
    truth = exact.search(data.queries, 10, among=among).ids
    assert recall(half.search(data.queries, 10, among=among).ids, truth) == 1.0
