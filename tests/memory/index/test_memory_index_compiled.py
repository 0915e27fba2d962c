"""Searches in C++ against those with arrays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory.index import Among
from memory.index import native_search as compiled
from memory.index.effort import Effort
from memory.index.evaluation import clustered
from memory.index.hashing import HashFunctions
from memory.index.lsh import LSHIndex
from sparse_core.kernels import native

ROWS = 6000

needs_compiler = pytest.mark.skipif(native.compiler() is None, reason="needs a C++ compiler")


def make_index(dim: int = 64, rows: int = ROWS, **settings: Any) -> tuple[LSHIndex, np.ndarray]:
    """An index with two ranges of tables, ids with gaps and no tail; and queries."""
    data = clustered(rows, 30, dim=dim, centres=60, noise=0.1)
    index = LSHIndex(dim, **{"expected": rows, **settings})
    half = 5 * rows // 6
    index.add(data.vectors[:half], 2 * np.arange(half) + 1)
    index.merge()
    index.add(data.vectors[half:], 2 * np.arange(half, rows) + 1, merge=False)
    index.merge()
    assert index.tail == 0
    return index, data.queries


@pytest.fixture
def with_arrays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine without a compiler."""
    compiled._function.cache_clear()
    native.compiler.cache_clear()
    native.load.cache_clear()
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(native, "BUILT", Path("/nonexistent"))
    monkeypatch.setattr(native, "_folder", lambda: Path("/nonexistent"))
    yield
    monkeypatch.undo()
    compiled._function.cache_clear()
    native.compiler.cache_clear()
    native.load.cache_clear()


@needs_compiler
@pytest.mark.parametrize(
    ("dim", "settings"),
    [
        (64, {}),
        (37, {"expected": 500, "tables": 3, "functions": 4}),
        (256, {"tables": 30}),
        (8, {"functions": 2, "tables": 1}),
    ],
)
@pytest.mark.parametrize("effort", [(10, 200), (400, 20), (3000, 3), (10**6, 200), (640, 10**6)])
@pytest.mark.parametrize("marked", [False, True])
def test_finds_what_arrays_find(
    monkeypatch: pytest.MonkeyPatch, dim: int, settings: dict[str, Any], effort: tuple[int, int], marked: bool
) -> None:
    index, queries = make_index(dim, **settings)
    assert len(index._state.buckets) == 2
    index.remove(2 * np.arange(100, 400) + 1)
    kept = np.random.default_rng(0).random(ROWS) < 0.3
    among = Among(2 * np.arange(ROWS) + 1, kept) if marked else None
    for k in (1, 10, 60):
        found = index.search(queries, k, among=among, effort=Effort(*effort))
        assert index._compiled is not None
        assert index._compiled[1] is not None
        with monkeypatch.context() as patch:
            patch.setattr(LSHIndex, "_compiled_of", lambda *_: None)
            right = index.search(queries, k, among=among, effort=Effort(*effort))
        np.testing.assert_allclose(found.scores, right.scores, atol=1e-6)
        # Sums are in another order: what is as near as the next may change places with it.
        with np.errstate(invalid="ignore"):
            tied = np.abs(np.diff(right.scores, axis=1, append=-np.inf)) < 2e-6
        tied[:, 1:] |= tied[:, :-1]
        assert tied.mean() < 0.01
        np.testing.assert_array_equal(np.where(tied, 0, found.ids), np.where(tied, 0, right.ids))


@needs_compiler
@pytest.mark.parametrize(
    ("dim", "functions", "bits"), [(1, 2, 4), (37, 20, 9), (64, 20, 5), (128, 20, 12), (300, 24, 6)]
)
def test_hashes_have_the_bits_of_arrays(dim: int, functions: int, bits: int) -> None:
    vectors = np.random.default_rng(dim).standard_normal((70, dim)).astype(np.float32)
    vectors[3], vectors[4] = 0.0, -vectors[5]
    drawn = HashFunctions(dim, functions, bits, seed=1)
    found = compiled.hash_rows(drawn, vectors)
    assert found is not None
    for array, right in zip(found, drawn.hash(vectors), strict=True):
        assert array.dtype == right.dtype
        np.testing.assert_array_equal(array, right)


@needs_compiler
def test_copies_are_cut_as_with_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    vector = np.eye(1, 32, dtype=np.float32)
    index = LSHIndex(32, expected=4000)
    index.add(vector.repeat(4000, axis=0), np.arange(4000))
    index.merge()
    found = index.search(vector, 500, effort=Effort(640, 10))
    monkeypatch.setattr(LSHIndex, "_compiled_of", lambda *_: None)
    right = index.search(vector, 500, effort=Effort(640, 10))
    np.testing.assert_array_equal(found.ids, right.ids)
    np.testing.assert_array_equal(found.ids, np.arange(500)[None])


@needs_compiler
def test_bits_do_not_depend_on_what_is_asked_together() -> None:
    index, queries = make_index(100)
    together = index.search(queries, 10)
    for count in (1, 2, 3, 7):
        for first in range(0, len(queries) - count, count):
            some = slice(first, first + count)
            found = index.search(queries[some], 10)
            assert found.ids.tobytes() == together.ids[some].tobytes()
            assert found.scores.tobytes() == together.scores[some].tobytes()


@needs_compiler
def test_half_precision_is_read_to_the_bit() -> None:
    # Numbers too small for the usual form of half precision count as they are.
    generator = np.random.default_rng(1)
    rows = generator.standard_normal((300, 48)).astype(np.float32)
    rows[:, 1:] *= generator.choice([1.0, 1e-5, 1e-6, 6e-8], (300, 47)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    index = LSHIndex(48, expected=300)
    index.add(rows, np.arange(300))
    index.merge()
    halves = rows.astype(np.float16).astype(np.float64)
    found = index.search(rows[:20], 300, effort=Effort(10**6, 1000))
    for query, ids, scores in zip(rows[:20], found.ids, found.scores, strict=True):
        assert (ids >= 0).sum() > 10
        np.testing.assert_allclose(scores[ids >= 0], halves[ids[ids >= 0]] @ query, atol=5e-7)
    # One number alone is its own product.
    for number in (6e-8, 5.9e-5, 6.2e-5, -0.05):
        index = LSHIndex(2, expected=100, functions=2, tables=1)
        index.add(np.array([[1.0, number]], np.float32), [5])
        index.merge()
        (score,) = index.search(np.array([[0.0, 1.0]], np.float32), 1, effort=Effort(10**6, 10)).scores[0]
        assert score == np.float32(np.float16(number))


@needs_compiler
def test_rows_that_come_later_are_found() -> None:
    index, queries = make_index(64)
    index.search(queries, 1)
    index.add(queries, 10**6 + np.arange(len(queries)), merge=False)
    assert (index.search(queries, 1).ids[:, 0] == 10**6 + np.arange(len(queries))).all()
    index.merge()
    assert index.tail == 0
    assert (index.search(queries, 1).ids[:, 0] == 10**6 + np.arange(len(queries))).all()


def test_without_a_compiler_arrays_search(with_arrays: None) -> None:
    index, queries = make_index()
    assert (index.search(queries, 1).ids >= 0).all()
    assert index._compiled is not None
    assert index._compiled[1] is None
