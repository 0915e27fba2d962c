"""The learned hash."""

from __future__ import annotations

import numpy as np
import pytest

from memory.index.effort import Effort
from memory.index.evaluation import clustered, recall
from memory.index.flat import FlatIndex
from memory.index.itq import ITQIndex

DATA = clustered(6000, 60, dim=96, centres=40, noise=0.08)
IDS = np.arange(6000)


def built(bits: int = 64) -> tuple[ITQIndex, FlatIndex]:
    index, exact = ITQIndex(96, bits=bits), FlatIndex(96)
    index.train(DATA.vectors[:1500], rounds=10)
    for known in (index, exact):
        known.add(DATA.vectors, IDS)
    return index, exact


def test_learning_beats_random_rotations() -> None:
    """Directions of unequal importance, as real embeddings have: the learned rotation spreads them."""
    spread = np.random.default_rng(0).standard_normal((6060, 96)) * np.exp(-np.arange(96) / 15)
    units = (spread / np.linalg.norm(spread, axis=1, keepdims=True)).astype(np.float32)
    exact = FlatIndex(96)
    exact.add(units[:6000], IDS)
    truth = exact.search(units[6000:], 10).ids
    shares = []
    for rounds in (0, 40):
        index = ITQIndex(96, bits=64)
        index.train(units[:1500], rounds=rounds)
        index.add(units[:6000], IDS)
        shares.append(recall(index.search(units[6000:], 10, effort=Effort(1, 40)).ids, truth))
    assert shares[1] > shares[0] + 0.02


def test_exact_until_it_is_trained_from_its_own_rows() -> None:
    index, exact = ITQIndex(96, bits=64), FlatIndex(96)
    for known in (index, exact):
        known.add(DATA.vectors, IDS)
    right = exact.search(DATA.queries, 5)
    assert (index.search(DATA.queries, 5).ids == right.ids).all()
    assert index.efforts() == ()
    index.merge()
    assert not index.trained
    index.merge(whole=True)
    assert index.trained
    assert index.efforts() == (Effort(1, 128),)
    assert recall(index.search(DATA.queries, 5).ids, right.ids) > 0.95
    few = ITQIndex(96, bits=64)
    few.add(DATA.vectors[:10], IDS[:10])
    few.merge(whole=True)
    assert not few.trained


def test_bad_arguments() -> None:
    for bits in (0, 63, 576):
        with pytest.raises(ValueError, match="bits must be a multiple of 64"):
            ITQIndex(1024, bits=bits)
    with pytest.raises(ValueError, match="bits must be at most dim 96"):
        ITQIndex(96, bits=128)
    index = ITQIndex(96, bits=64)
    with pytest.raises(ValueError, match="at least 64 rows"):
        index.train(DATA.vectors[:10])
    assert (index.search(DATA.queries, 2).ids == -1).all()
    with pytest.raises(ValueError, match="trained already"):
        built()[0].train(DATA.vectors)
