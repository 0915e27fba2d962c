"""The index as a whole: on the CPU, where the same steps run in plain torch, and on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.errors import IndexUnavailableError
from memory.index import Among, calibration
from memory.index.cuda import CudaIndex, efforts, sorted_rows
from memory.index.effort import EXACT, Effort
from memory.index.evaluation import clustered, recall
from memory.index.flat import FlatIndex
from memory.index.lsh import LSHIndex

ROWS = 4000
DATA = clustered(ROWS, 40, dim=48, centres=40, noise=0.1)
SMALL: dict[str, Any] = {"pivots": 64, "probes": 24, "capacity": 3000, "rerank": 200, "scan_rerank": 200}


def both(rows: int = ROWS, **more: Any) -> tuple[CudaIndex, FlatIndex]:
    made = CudaIndex(48, **({"device": "cpu"} | SMALL | more)), FlatIndex(48)
    for index in made:
        index.add(DATA.vectors[:rows], np.arange(rows))
    return made


def tensor(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


@pytest.mark.parametrize("method", ["scan", "cells"])
def test_recall_of_twenty_thousand(method: Any) -> None:
    data = clustered(20_000, 24)
    index, exact = CudaIndex(256, device="cpu"), FlatIndex(256)
    for known in (index, exact):
        known.add(data.vectors, np.arange(20_000))
    found = index.search_tensor(tensor(data.queries), 10, method=method)
    right = exact.search(data.queries, 10)
    assert recall(found.ids, right.ids) >= 0.95
    same = found.ids.numpy() == right.ids
    np.testing.assert_allclose(found.scores.numpy()[same], right.scores[same], atol=1e-5)


def test_cells_are_made_at_the_first_search() -> None:
    index, exact = both()
    assert index.tail == ROWS
    assert recall(index.search(DATA.queries, 10).ids, exact.search(DATA.queries, 10).ids) > 0.95
    assert index.tail == 0
    assert index.nbytes > ROWS * (48 * 2 + 64)
    with pytest.raises(ValueError, match="method"):
        index.search_tensor(tensor(DATA.queries), 3, method="guess")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="queries"):
        index.search_tensor(torch.zeros(2, 5), 3)


def test_same_answers_again_and_one_by_one() -> None:
    first, second = both()[0], both()[0]
    for method in ("scan", "cells"):
        found = [known.search_tensor(tensor(DATA.queries), 7, method=method) for known in (first, second)]
        assert torch.equal(found[0].ids, found[1].ids)
        assert torch.equal(found[0].scores, found[1].scores)
        some = DATA.queries[:8]
        alone = [first.search_tensor(tensor(query[None]), 7, method=method).ids[0] for query in some]
        assert (torch.stack(alone) == found[0].ids[:8]).float().mean() > 0.99


@pytest.mark.parametrize("method", ["scan", "cells"])
def test_fresh_rows_are_found_at_once_and_removed_ones_never(method: Any) -> None:
    index, _ = both(3000)
    index.search_tensor(tensor(DATA.queries), 1, method=method)
    index.add(DATA.vectors[3000:3003], [3000, 3001, 3002])
    own = tensor(DATA.vectors[3000:3003])
    assert index.search_tensor(own, 1, method=method).ids[:, 0].tolist() == [3000, 3001, 3002]
    assert index.tail == 3
    assert index.remove([3001, 5, 10**6]) == 2
    assert index.remove([3001]) == 0
    assert len(index) == 3001
    assert index.search_tensor(own, 3, method=method).ids[1].tolist().count(3001) == 0
    index.merge()
    assert index.tail == 0
    assert index.search_tensor(own, 1, method=method).ids[[0, 2], 0].tolist() == [3000, 3002]
    index.remove(np.arange(4000))
    assert len(index) == 0
    assert (index.search_tensor(own, 2, method=method).ids == -1).all()
    index.compact()
    index.add(DATA.vectors[:2], [7, 3])
    assert index.search_tensor(tensor(DATA.vectors[:2]), 1, method=method).ids[:, 0].tolist() == [7, 3]


def test_long_tails_and_many_removals_are_sorted_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_rows, "TAIL_LIMIT", 100)
    index, exact = both(1000)
    index.search(DATA.queries, 3)
    for known in (index, exact):
        known.add(DATA.vectors[1000:1100], np.arange(1000, 1100))
    index.search(DATA.queries, 3)
    assert index.tail == 100
    for known in (index, exact):
        known.add(DATA.vectors[1100:1101], [1100])
        known.remove(np.arange(0, 900, 3))
    assert recall(index.search(DATA.queries, 10).ids, exact.search(DATA.queries, 10).ids) > 0.95
    assert index.tail == 0
    index.remove(np.arange(1, 900, 3))
    assert index._sorted.cells is not None
    before = len(index._sorted.cells.rows)
    index.search(DATA.queries, 10)
    assert len(index._sorted.cells.rows) == before - 300


@pytest.mark.parametrize("method", ["scan", "cells"])
def test_equal_scores_go_to_the_lower_id(method: Any) -> None:
    index = CudaIndex(48, device="cpu", **SMALL)
    ids = np.random.default_rng(0).permutation(300)
    for part in np.array_split(np.arange(300), 3):
        index.add(np.repeat(DATA.vectors[:1], len(part), axis=0), ids[part])
    assert index.search_tensor(tensor(DATA.vectors[:1]), 5, method=method).ids.tolist() == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("method", ["scan", "cells"])
def test_few_rows(method: Any) -> None:
    index = CudaIndex(48, device="cpu", **SMALL)
    asked = tensor(DATA.queries[:3])
    assert (index.search_tensor(asked, 2, method=method).ids == -1).all()
    index.add(np.empty((0, 48), np.float32), [])
    index.add(DATA.queries[:1], [9])
    found = index.search_tensor(asked[:1], 3, method=method)
    assert found.ids.tolist() == [[9, -1, -1]]
    assert found.scores[0, 0] == pytest.approx(1.0, abs=1e-3)
    assert found.scores[0, 1:].tolist() == [-np.inf, -np.inf]
    assert index.search_tensor(asked[:0], 3, method=method).ids.shape == (0, 3)


def test_subsets_are_exact() -> None:
    index, exact = both()
    allowed = np.random.default_rng(0).permutation(ROWS)[: ROWS // 2]
    right = exact.search(DATA.queries, 10, among=Among(allowed))
    kept = np.isin(np.arange(ROWS), allowed)
    for found in (
        index.search(DATA.queries, 10, among=Among(allowed)),
        index.search(DATA.queries, 10, among=Among(np.append(allowed, 10**7)), aim=1.0),
        index.search(DATA.queries, 10, among=Among(np.arange(ROWS), kept), aim=1.0),
    ):
        assert (found.ids == right.ids).mean() > 0.99
        np.testing.assert_allclose(found.scores, right.scores, atol=1e-5)
    assert index.search(DATA.queries, 2, among=Among([]), aim=1.0).ids.max() == -1


def test_overflow_is_reported() -> None:
    index, _ = both(capacity=64)
    index.search_tensor(tensor(DATA.queries), 5, method="cells")
    queries, rows = index.overflow
    assert 0 < queries <= len(DATA.queries)
    assert rows >= queries


def spread(rows: int, dim: int) -> np.ndarray[Any, Any]:
    """Unit vectors with no structure at all."""
    drawn = np.random.default_rng(5).normal(size=(rows, dim)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def decaying(rows: int, dim: int) -> np.ndarray[Any, Any]:
    """Unit vectors without clusters, of a spectrum that falls."""
    drawn = np.random.default_rng(6).normal(size=(rows, dim)) * np.exp(-np.arange(dim) / (dim / 6))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(autouse=True)
def few_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure an index with fewer of its rows: the steps take long in plain torch."""
    monkeypatch.setattr(calibration, "QUERIES", 40)


@pytest.mark.parametrize("make", [spread, decaying])
@pytest.mark.parametrize("aim", [0.95, 0.99])
def test_what_is_aimed_at_is_found_or_all_is_read(make: Any, aim: float, monkeypatch: Any) -> None:
    # As if comparing all were dear, as it is where there are millions.
    monkeypatch.setattr(efforts, "_CALL", 0.0)
    monkeypatch.setattr(efforts, "_EXACT_ROW", 50.0)
    vectors = make(6100, 48)
    index, exact = CudaIndex(48, device="cpu", pivots=512), FlatIndex(48)
    for known in (index, exact):
        known.add(vectors[:6000], np.arange(6000))
    right = exact.search(vectors[6000:], 10).ids
    least = Effort(16, 512)
    few = recall(index.search(vectors[6000:], 10, effort=least).ids, right)
    assert few < aim
    assert recall(index.search(vectors[6000:], 10, aim=aim).ids, right) >= aim - 0.01
    assert index.calibration is not None
    chosen = index.effort(aim)
    assert chosen != least
    assert chosen == EXACT or index.calibration.least(aim).recall >= aim  # type: ignore[union-attr]
    words = "cells" if not efforts.is_scan(chosen) else "a scan of all codes"
    assert (words if chosen != EXACT else "all rows compared") in index.describe(aim)


def test_more_neighbours_than_kernels_rank_are_compared_exactly() -> None:
    index, exact = both()
    found, right = index.search(DATA.queries[:3], 2000), exact.search(DATA.queries[:3], 2000)
    np.testing.assert_allclose(found.scores, right.scores, atol=1e-5)
    assert (found.ids == right.ids).mean() > 0.99


def test_a_tail_is_sorted_into_the_cells_that_there_are() -> None:
    index, exact = both(3000)
    index.merge()
    before = index._sorted.cells
    for known in (index, exact):
        known.remove(np.arange(0, 3000, 10))
        known.add(DATA.vectors[3000:], np.arange(3000, ROWS))
    index.merge()
    cells = index._sorted.cells
    assert before is not None
    assert cells is not None
    assert torch.equal(cells.base, before.base), "pivots stay"
    assert index.tail == 0
    found = index.search_tensor(tensor(DATA.queries), 10, method="cells")
    assert recall(found.ids, exact.search(DATA.queries, 10).ids) > 0.95
    index.add(spread(3 * ROWS, 48), np.arange(ROWS, 4 * ROWS))
    index.merge()
    assert index._sorted.cells is not None
    assert not torch.equal(index._sorted.cells.base, before.base), "drawn anew once there are twice as many"


def test_ids_may_come_in_any_order() -> None:
    index, exact = CudaIndex(48, device="cpu", **SMALL), FlatIndex(48)
    for part in (np.arange(2000, 3000), np.arange(0, 1000), np.arange(1000, 2000)):
        for known in (index, exact):
            known.add(DATA.vectors[part], part)
    index.remove([2500, 10])
    index.add(DATA.vectors[[10, 2500]], [10, 2500])
    for known in (index, exact):
        known.add(np.repeat(DATA.vectors[:1], 3, axis=0), [7001, 7000, 6999])
    found, right = index.search(DATA.vectors[:50], 10, aim=1.0), exact.search(DATA.vectors[:50], 10)
    np.testing.assert_allclose(found.scores, right.scores, atol=1e-5)
    assert found.ids[0, :4].tolist() == [0, 6999, 7000, 7001]
    assert (index.search(DATA.vectors[:50], 1, among=Among(np.arange(2000, 2600))).ids >= 2000).all()


def test_without_a_gpu_the_error_says_what_to_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(IndexUnavailableError, match=r"needs an NVIDIA GPU.*LSHIndex"):
        CudaIndex(48)


@pytest.mark.slow
def test_file(tmp_path: Path) -> None:
    index, _ = both(seed=3)
    index.remove([4, 5])
    index.generation = 12
    loaded = CudaIndex.load(index.save(tmp_path / "cuda.index"), device="cpu")
    assert (loaded.generation, loaded.seed, loaded.pivots, len(loaded)) == (12, 3, 64, ROWS - 2)
    left, right = index.search(DATA.queries, 10), loaded.search(DATA.queries, 10)
    assert (left.ids == right.ids).mean() > 0.99
    again = CudaIndex.load(index.save(tmp_path / "cuda.index"), device="cpu")
    assert again.calibration == index.calibration is not None
    empty = CudaIndex(48, device="cpu")
    assert len(CudaIndex.load(empty.save(tmp_path / "empty.index"), device="cpu")) == 0
    with pytest.raises(ValueError, match="kind"):
        CudaIndex.load(LSHIndex(48).save(tmp_path / "lsh.index"), device="cpu")


def test_bad_rows_change_nothing() -> None:
    index, _ = both(10)
    for vectors, ids, words in (
        (DATA.vectors[:1] * 2, [50], "unit"),
        (DATA.vectors[:1] * np.nan, [50], "unit"),
        (DATA.vectors[:2], [50], "one entry"),
        (DATA.vectors[:2], [50, 50], "twice"),
        (DATA.vectors[:1], [3], "exists"),
        (DATA.vectors[:1, :5], [50], "shape"),
    ):
        with pytest.raises(ValueError, match=words):
            index.add(vectors, ids)
    with pytest.raises(ValueError, match="unit"):
        index.add_tensor(torch.zeros(1, 48), [50])
    assert len(index) == 10
    wrong: tuple[dict[str, Any], ...] = ({"probes": 129}, {"probes": -1}, {"pivots": 1 << 16}, {"seed": -1})
    for bad in wrong:
        with pytest.raises(ValueError):
            CudaIndex(48, device="cpu", **bad)
    with pytest.raises(ValueError, match="k must be at most 1024"):
        index.search_tensor(tensor(DATA.queries), 2000)


METHODS: tuple[Any, ...] = ("scan", "cells")
STEPS = st.lists(st.tuples(st.sampled_from("aarcms"), st.lists(st.integers(0, 40), max_size=8)), max_size=12)


@settings(max_examples=12)
@given(STEPS)
def test_any_order_of_changes(steps: list[tuple[str, list[int]]]) -> None:
    # Each row may have a cell of its own: all cells are looked at.
    index, exact = CudaIndex(48, device="cpu", **SMALL | {"probes": SMALL["pivots"]}), FlatIndex(48)
    living: set[int] = set()
    asked = DATA.queries[:10]
    for step, numbers in steps:
        if step == "a":
            new = np.array([number for number in dict.fromkeys(numbers) if number not in living], np.int64)
            for known in (index, exact):
                known.add(DATA.vectors[new], new)
            living |= set(new.tolist())
        elif step == "r":
            assert index.remove(numbers) == exact.remove(np.array(numbers, np.int64))
            living -= set(numbers)
        elif step == "c":
            index.compact()
        elif step == "m":
            index.merge()
        assert len(index) == len(living)
        right = exact.search(asked, 50)
        # All rows fit in the effort.
        for method in METHODS:
            found = index.search_tensor(tensor(asked), 50, method=method)
            # On a device the answer is as wide as was asked; else at most as wide as there are rows.
            width = right.ids.shape[1]
            np.testing.assert_allclose(found.scores.numpy()[:, :width], right.scores, atol=1e-5)
            assert (np.sort(found.ids.numpy()[:, :width]) == np.sort(right.ids)).all()
            assert (found.ids.numpy()[:, width:] == -1).all()


@pytest.mark.parametrize("k", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_neighbours(k: int) -> None:
    index, exact = both(rerank=50)
    found, right = index.search(DATA.queries, k), exact.search(DATA.queries, k)
    assert recall(found.ids, right.ids) > 0.95
    assert (np.diff(found.scores, axis=1) <= 0).all()


@pytest.mark.parametrize("method", ["scan", "cells"])
def test_more_equal_rows_than_are_compared(method: Any) -> None:
    index = CudaIndex(48, device="cpu", **SMALL | {"pivots": 0})
    index.add(np.repeat(DATA.vectors[:1], 1000, axis=0), np.arange(1000))
    index.add(np.repeat(DATA.vectors[1:2], 700, axis=0), np.arange(1000, 1700))
    index.remove([0, 1000])
    found = index.search_tensor(tensor(DATA.vectors[:2]), 4, method=method)
    assert found.ids.tolist() == [[1, 2, 3, 4], [1001, 1002, 1003, 1004]]


@pytest.mark.gpu
def test_graphs_give_the_same_bits_as_eager_calls(cuda: torch.device) -> None:
    data = clustered(200_000, 1024)
    index, exact = CudaIndex(256, device=cuda), FlatIndex(256)
    for known in (index, exact):
        known.add(data.vectors, np.arange(200_000))
    right = exact.search(data.queries, 10).ids
    queries = tensor(data.queries).to(cuda)
    for method in ("scan", "cells"):
        for size in (1, 8, 1024) if method == "cells" else (1, 8):
            asked = queries[:size]
            eager = index.eager(asked, 10, index.effort_of(method))
            replayed = [index.search_tensor(asked, 10, method=method) for _ in range(3)]
            for found in replayed:
                assert torch.equal(found.ids, eager[1])
                assert torch.equal(found.scores, eager[0])
            # Ten neighbours of one query say little.
            assert recall(replayed[0].ids.cpu(), right[:size]) >= (0.95 if size > 8 else 0.5)
    assert len(index._sorted.graphs) == 5


@pytest.mark.gpu
def test_changes_are_seen_by_captured_graphs(cuda: torch.device) -> None:
    index, exact = both(device=cuda)
    for known in (index, exact):
        known.remove(np.arange(0, ROWS, 5))
        known.add(DATA.queries[:3], [ROWS, ROWS + 1, ROWS + 2])
    for method in ("scan", "cells"):
        found = index.search_tensor(tensor(DATA.queries).to(cuda), 10, method=method)
        assert found.ids[:3, 0].tolist() == [ROWS, ROWS + 1, ROWS + 2]
        assert recall(found.ids.cpu(), exact.search(DATA.queries, 10).ids) > 0.95
        index.remove([ROWS + 1])
        again = index.search_tensor(tensor(DATA.queries).to(cuda), 10, method=method)
        assert ROWS + 1 not in again.ids
        index.add(DATA.queries[1:2], [ROWS + 1])
