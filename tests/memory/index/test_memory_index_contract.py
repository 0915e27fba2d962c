"""What every index that is not exact does alike: recall, removal, lists of ids, files, seeds and ties."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from memory.index import Among, FlatIndex, ITQIndex, LSHIndex, calibration, clustered, recall
from memory.index.cuda import CudaIndex
from memory.index.faiss_index import FaissIndex

ROWS, DIM = 6000, 64
DATA = clustered(ROWS, 60, dim=DIM, centres=40, noise=0.08)
MORE = clustered(50, 0, dim=DIM, seed=9).vectors
IDS = np.arange(ROWS) * 2 + 1


class Case(NamedTuple):
    """How an index is made for a seed, loaded, and which of its settings its file keeps."""

    make: Callable[[int], Any]
    load: Callable[[Path], Any]
    kept: tuple[str, ...]


CUDA = {"pivots": 64, "probes": 24, "capacity": 3000, "rerank": 200, "scan_rerank": 200}
CASES: dict[str, Case] = {
    "lsh": Case(lambda seed: LSHIndex(DIM, expected=ROWS, seed=seed), LSHIndex.load, ("expected", "seed")),
    "itq": Case(lambda seed: ITQIndex(DIM, bits=64, seed=seed), ITQIndex.load, ("bits",)),
    "faiss": Case(
        lambda seed: FaissIndex(DIM, cells=32, probes=8, seed=seed), FaissIndex.load, ("lists", "cells")
    ),
    "faiss-rabitq": Case(
        lambda seed: FaissIndex(DIM, lists="rabitq", cells=32, probes=8, seed=seed),
        FaissIndex.load,
        ("lists", "cells"),
    ),
    "cuda": Case(
        lambda seed: CudaIndex(DIM, device="cpu", seed=seed, **CUDA),
        lambda path: CudaIndex.load(path, device="cpu"),
        ("seed", "pivots"),
    ),
}


@pytest.fixture(autouse=True)
def _short_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few rows are searched well by any setting; calibration has tests of its own."""
    monkeypatch.setattr(calibration, "QUERIES", 50)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    if request.param.startswith("faiss"):
        pytest.importorskip("faiss", reason="faiss is an optional library")
    return CASES[request.param]


def both(case: Case, seed: int = 3) -> tuple[Any, FlatIndex]:
    """The index, trained on its own rows, and the exact one."""
    index, exact = case.make(seed), FlatIndex(DIM)
    for known in (index, exact):
        known.add(DATA.vectors, IDS)
    index.merge(whole=True)
    return index, exact


def test_most_neighbours_are_found_with_exact_scores(case: Case) -> None:
    index, exact = both(case)
    found, right = index.search(DATA.queries, 10), exact.search(DATA.queries, 10)
    assert recall(found.ids, right.ids) > 0.95
    same = found.ids == right.ids
    np.testing.assert_allclose(found.scores[same], right.scores[same], atol=1e-5)
    assert (np.diff(found.scores, axis=1) <= 0).all()
    alone = [index.search(query[None], 10).ids[0].tolist() for query in DATA.queries[:10]]
    assert alone == found.ids[:10].tolist()


def test_removed_and_unlisted_rows_are_never_found(case: Case) -> None:
    index, exact = both(case)
    gone = IDS[::2]
    for known in (index, exact):
        assert known.remove(gone) == len(gone)
        assert known.remove(gone) == 0
    assert len(index) == len(exact)
    found = index.search(DATA.queries, 10).ids
    assert not np.isin(found, gone).any()
    assert recall(found, exact.search(DATA.queries, 10).ids) > 0.95
    listed = np.random.default_rng(0).permutation(IDS)[: ROWS // 2]
    found, right = (one.search(DATA.queries, 10, among=Among(listed)).ids for one in (index, exact))
    assert np.isin(found[found >= 0], np.setdiff1d(listed, gone)).all()
    assert recall(found, right) > 0.9
    found, right = (
        one.search(DATA.queries, 10, among=Among(listed[:300]), aim=1.0).ids for one in (index, exact)
    )
    assert (found == right).all()
    assert (index.search(DATA.queries, 5, among=Among(gone[:2])).ids == -1).all()
    index.add(DATA.vectors[:1], IDS[:1])
    assert index.search(DATA.vectors[:1], 1).ids.tolist() == [[IDS[0]]]


# The cells of an index on a GPU are drawn anew when it is loaded: its files have a test of their own.
@pytest.mark.parametrize("case", [name for name in CASES if name != "cuda"], indirect=True)
def test_a_file_goes_on_as_the_index(case: Case, tmp_path: Path) -> None:
    index, _ = both(case)
    index.remove(IDS[:5])
    index.generation = 12
    loaded = case.load(index.save(tmp_path / "saved.index"))
    assert (loaded.generation, len(loaded)) == (12, ROWS - 5)
    assert [getattr(loaded, name) for name in case.kept] == [getattr(index, name) for name in case.kept]
    for known in (index, loaded):
        known.add(MORE, np.arange(len(MORE)) + 10**6)
    left, right = index.search(DATA.queries, 10), loaded.search(DATA.queries, 10)
    np.testing.assert_array_equal(left.ids, right.ids)
    np.testing.assert_allclose(left.scores, right.scores, atol=1e-6)


def test_an_empty_index_and_no_queries(case: Case, tmp_path: Path) -> None:
    index = case.make(0)
    index.add(np.empty((0, DIM), np.float32), [])
    loaded = case.load(index.save(tmp_path / "empty.index"))
    for known in (index, loaded):
        assert (known.search(DATA.queries[:2], 3).ids == -1).all()
        assert len(known.search(np.empty((0, DIM), np.float32), 3).ids) == 0


def test_the_seed_decides(case: Case) -> None:
    left, right = (both(case, seed=4)[0].search(DATA.queries, 10) for _ in range(2))
    np.testing.assert_array_equal(left.ids, right.ids)
    np.testing.assert_array_equal(left.scores, right.scores)


def test_equal_vectors_go_to_the_lower_id(case: Case) -> None:
    index = case.make(0)
    index.add(np.concatenate([np.repeat(DATA.vectors[:1], 2000, axis=0), DATA.vectors[1:]]), np.arange(7999))
    index.merge(whole=True)
    assert index.search(DATA.vectors[:1], 3).ids.tolist() == [[0, 1, 2]]
