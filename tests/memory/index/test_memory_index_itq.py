"""The learned hash."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memory.index import Among
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


def test_recall_and_exact_scores() -> None:
    index, exact = built()
    assert recall(index.search(DATA.queries, 10).ids, exact.search(DATA.queries, 10).ids) > 0.95
    found, right = index.search(DATA.queries, 10), exact.search(DATA.queries, 10)
    same = found.ids == right.ids
    np.testing.assert_allclose(found.scores[same], right.scores[same], atol=1e-5)
    assert (index.search(DATA.queries, 3, effort=Effort(1, 6000)).ids == right.ids[:, :3]).all()


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


def test_remove_allowed_and_readd() -> None:
    index, exact = built()
    for known in (index, exact):
        known.remove(IDS[::2])
    assert (index.search(DATA.queries, 10).ids % 2 == 1).all()
    allowed = IDS[:900]
    found = index.search(DATA.queries, 5, among=Among(allowed)).ids
    assert ((found % 2 == 1) & (found < 900)).all()
    found, right = (one.search(DATA.queries, 5, among=Among(allowed)).ids for one in (index, exact))
    assert recall(found, right) > 0.95
    assert (index.search(DATA.queries, 5, among=Among([0, 2])).ids == -1).all()
    index.add(DATA.vectors[:1], [0])
    assert index.search(DATA.vectors[:1], 1).ids.tolist() == [[0]]


def test_file(tmp_path: Path) -> None:
    index, _ = built()
    index.remove([3])
    index.generation = 5
    loaded = ITQIndex.load(index.save(tmp_path / "itq.index"))
    assert (loaded.generation, loaded.bits, len(loaded)) == (5, 64, 5999)
    extra = clustered(50, 0, dim=96, seed=9).vectors
    for known in (index, loaded):
        known.add(extra, np.arange(6000, 6050))
    left, right = index.search(DATA.queries, 10), loaded.search(DATA.queries, 10)
    assert (left.ids == right.ids).all()
    untrained = ITQIndex.load(ITQIndex(96, bits=64).save(tmp_path / "new.index"))
    assert not untrained.trained


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


def test_same_seed_same_codes() -> None:
    first, second = built()[0], built()[0]
    assert (first._state.codes.between(0, 6000) == second._state.codes.between(0, 6000)).all()


def test_equal_vectors_go_to_the_lower_id() -> None:
    index = ITQIndex(96, bits=64, rerank=20)
    index.train(DATA.vectors[:500], rounds=2)
    index.add(np.repeat(DATA.vectors[:1], 3000, axis=0), np.arange(3000))
    assert index.search(DATA.vectors[:1], 3).ids.tolist() == [[0, 1, 2]]


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
