"""Exact search, its rows and its ties."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from memory.index import Among
from memory.index.evaluation import clustered
from memory.index.flat import FlatIndex
from memory.index.neighbours import Neighbours, to_float32, unit_rows
from memory.index.rows import Rows


def oracle(
    vectors: NDArray[np.float32], ids: NDArray[np.int64], queries: NDArray[np.float32], k: int
) -> Neighbours:
    """One query at a time, in float64, from the vectors as they are stored."""
    scores = np.full((len(queries), k), -np.inf, np.float32)
    found = np.full((len(queries), k), -1, np.int64)
    stored = vectors.astype(np.float16).astype(np.float64)
    for row, query in enumerate(queries.astype(np.float64)):
        exact = stored @ query
        order = np.lexsort((ids, -exact))[:k]
        scores[row, : len(order)], found[row, : len(order)] = exact[order], ids[order]
    return Neighbours(scores, found)


def index_of(vectors: NDArray[np.float32], ids: NDArray[np.int64]) -> FlatIndex:
    index = FlatIndex(vectors.shape[1])
    index.add(vectors, ids)
    return index


@pytest.mark.parametrize(("rows", "dim", "queries", "k"), [(1, 1, 1, 1), (7, 3, 2, 10), (5000, 33, 300, 10)])
def test_same_as_the_oracle(rows: int, dim: int, queries: int, k: int) -> None:
    data = clustered(rows, queries, dim=dim, centres=20, noise=0.3)
    ids = np.arange(rows) * 3 + 5
    index = index_of(data.vectors, ids)
    found = index.search(data.queries, k)
    right = oracle(data.vectors, ids, data.queries, min(k, max(rows, 1)))
    np.testing.assert_allclose(found.scores, right.scores, atol=1e-5)
    assert (found.ids == right.ids).mean() > 0.99 or dim == 1
    assert found.scores.dtype == np.float32
    assert found.ids.dtype == np.int64


def test_equal_scores_go_to_the_lower_id() -> None:
    vectors = np.zeros((3000, 4), np.float32)
    vectors[:, 0] = 1.0
    ids = np.random.default_rng(0).permutation(3000)
    index = FlatIndex(4)
    for part in np.array_split(np.arange(3000), 7):
        index.add(vectors[part], ids[part])
    found = index.search(vectors[:2], 5)
    assert found.ids.tolist() == [[0, 1, 2, 3, 4]] * 2
    index.remove([1, 3])
    assert index.search(vectors[:1], 3).ids.tolist() == [[0, 2, 4]]


@pytest.mark.parametrize("share", [0.0, 0.01, 0.2, 0.6, 1.0])
def test_allowed_ids(share: float) -> None:
    data = clustered(2000, 20, dim=16, centres=10)
    ids = np.arange(2000) + 100
    index = index_of(data.vectors, ids)
    allowed = np.random.default_rng(1).permutation(ids)[: int(share * 2000)]
    places = np.sort(allowed) - 100
    right = oracle(data.vectors[places], np.sort(allowed), data.queries, 10)
    for found in (
        index.search(data.queries, 10, among=Among(np.append(allowed, 10**9))),
        index.search(data.queries, 10, among=Among(allowed), aim=1.0),
    ):
        np.testing.assert_allclose(found.scores, right.scores, atol=1e-5)
        assert (found.ids == right.ids).all()


def test_empty_index_and_no_queries() -> None:
    index = FlatIndex(4)
    found = index.search(np.eye(4, dtype=np.float32), 3)
    assert (found.ids == -1).all()
    assert (found.scores == -np.inf).all()
    index.add(np.eye(4, dtype=np.float32), np.arange(4))
    assert index.search(np.empty((0, 4), np.float32), 3).ids.shape == (0, 3)
    assert index.search(np.eye(4, dtype=np.float32), 3, among=Among([]), aim=1.0).ids.max() == -1


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("arcs"), st.lists(st.integers(0, 30), max_size=6)), max_size=20))
def test_any_order_of_changes(steps: list[tuple[str, list[int]]]) -> None:
    vectors = clustered(31, 0, dim=5, centres=3, noise=0.4, seed=3).vectors
    queries = vectors[:3]
    index, model = FlatIndex(5), dict[int, int]()
    for step, numbers in steps:
        if step == "a":
            new = np.array([n for n in dict.fromkeys(numbers) if n not in model], np.int64)
            index.add(vectors[new], new)
            model.update({int(n): int(n) for n in new})
        elif step == "r":
            assert index.remove(np.array(numbers, np.int64)) == sum(n in model for n in set(numbers))
            for number in numbers:
                model.pop(number, None)
        elif step == "c":
            index.compact()
        ids = np.array(sorted(model), np.int64)
        assert len(index) == len(ids)
        right = oracle(vectors[ids], ids, queries, min(4, max(len(ids), 1)))
        found = index.search(queries, 4)
        np.testing.assert_allclose(found.scores, right.scores, atol=1e-5)
        assert (np.sort(found.ids) == np.sort(right.ids)).all()


def test_rows_find_ids_in_any_order() -> None:
    vectors = clustered(6, 0, dim=4, centres=2).vectors
    rows = Rows(4)
    rows.add(vectors[:3], [10, 30, 20])
    rows.add(vectors[3:5], [5, 25])
    assert rows.find(np.array([10, 20, 30, 5, 25, 7, 99])).tolist() == [0, 1, 2, 3, 4, -1, -1]
    assert len(rows.remove([25, 25, 7])) == 1
    rows.add(vectors[5:], [25])
    assert rows.find(np.array([25])).tolist() == [5]
    again = Rows(4, rows.vectors.between(0, 6), rows.ids(), rows.alive())
    assert again.find(np.array([10, 20, 30, 5, 25, 7])).tolist() == [0, 1, 2, 3, 5, -1]
    assert len(again) == len(rows) == 5


def test_file_is_mapped_and_can_grow(tmp_path: Path) -> None:
    data = clustered(500, 10, dim=16, centres=5)
    index = index_of(data.vectors[:400], np.arange(400))
    index.remove([3, 4])
    index.generation = 17
    loaded = FlatIndex.load(index.save(tmp_path / "flat.index"))
    assert loaded.generation == 17
    assert isinstance(loaded._state.rows.vectors._fixed.base, np.ndarray)
    assert not loaded._state.rows.vectors._fixed.flags.writeable
    for known in (index, loaded):
        known.add(data.vectors[400:], np.arange(400, 500))
        known.remove([7])
    right, found = index.search(data.queries, 12), loaded.search(data.queries, 12)
    assert (right.ids == found.ids).all()
    np.testing.assert_allclose(right.scores, found.scores, atol=1e-6)
    allowed = np.arange(390, 410)
    assert (loaded.search(data.queries, 5, among=Among(allowed)).ids >= 390).all()


@pytest.mark.parametrize(
    ("vectors", "ids", "message"),
    [
        (np.ones((1, 3)), [0], "shape"),
        (np.ones((1, 4)), [0], "unit vectors: row 0"),
        (np.array([[1, 0, 0, 0], [np.nan, 0, 0, 0]]), [0, 1], "row 1"),
        (np.eye(4), [0, 1, 2], "3 for 4"),
        (np.eye(4), [0, 1, 2, 2], "twice"),
        (np.eye(4), [0, 1, 2, 7], "id 7 exists"),
        (np.eye(4), [0, 1, 2, -1], "negative"),
    ],
)
def test_bad_vectors_change_nothing(vectors: NDArray[np.float64], ids: list[int], message: str) -> None:
    index = FlatIndex(4)
    index.add(np.eye(4, dtype=np.float32)[:1], [7])
    with pytest.raises(ValueError, match=message):
        index.add(vectors, ids)
    assert len(index) == 1


def test_bad_arguments() -> None:
    index = FlatIndex(4)
    with pytest.raises(ValueError, match="k must be at least 1"):
        index.search(np.eye(4), 0)
    with pytest.raises(TypeError, match="k must be an integer"):
        index.search(np.eye(4), 1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="among must be integers"):
        index.search(np.eye(4), 1, among=Among([0.5]))
    with pytest.raises(ValueError, match="dim must be at least 1"):
        FlatIndex(0)
    with pytest.raises(TypeError, match="dim must be an integer"):
        FlatIndex(2.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [1, 1023, 1025, 40_000])
@pytest.mark.parametrize("queries", [1, 3])
def test_the_nearest_of_several_blocks_are_those_of_all(rows: int, queries: int) -> None:
    generator = np.random.default_rng(rows)
    vectors = unit_rows(generator.standard_normal((rows, 8)), 8)
    index = FlatIndex(8)
    index.add(vectors, np.arange(rows))
    asked = vectors[:1].repeat(queries, 0)
    found = index.search(asked, 5)
    scores = asked @ vectors.astype(np.float16).astype(np.float32).T
    expected = -np.sort(-scores, axis=1)[:, :5]
    np.testing.assert_allclose(found.scores[:, : expected.shape[1]], expected, atol=1e-6)
    assert (found.ids[:, 0] == 0).all()


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_vectors_of_any_length_become_units(size: float) -> None:
    np.testing.assert_allclose(unit_rows(np.array([[3.0, -4.0]]) * size, 2), [[0.6, -0.8]], rtol=1e-6)


@pytest.mark.parametrize("wrong", [0.0, np.nan, np.inf])
def test_vectors_without_a_direction_are_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="must be finite and not zero"):
        unit_rows(np.array([[1.0, 0.0], [wrong, 0.0]]), 2)


@pytest.mark.parametrize("shape", [(0, 8), (1, 8), (5000, 8), (3, 40_000), (33_000, 256)])
def test_vectors_are_converted_to_the_same_bits_without_torch(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.random.default_rng(0).standard_normal(shape).astype(np.float16)
    rows.setflags(write=False)
    with_torch = to_float32(rows)
    monkeypatch.delitem(sys.modules, "torch")
    assert to_float32(rows).tobytes() == with_torch.tobytes() == rows.astype(np.float32).tobytes()
    room = np.empty((shape[0] + 1, shape[1]), np.float32)
    assert to_float32(rows, room).tobytes() == with_torch.tobytes()
