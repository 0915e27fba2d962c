"""Two tiers answer as one index, whatever moves meanwhile."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from memory.index import Among
from memory.index.evaluation import clustered
from memory.index.flat import FlatIndex
from memory.index.lsh import LSHIndex
from memory.index.neighbours import LongTermIndex
from memory.index.tiered import OUTGROWN, TieredIndex

DIM = 16


def exhaustive(count: int) -> LongTermIndex:
    """A long-term index that finds everything, so that answers can be compared exactly."""
    return FlatIndex(DIM)


def tiered(make: Any = exhaustive, **options: Any) -> TieredIndex:
    return TieredIndex(DIM, make=make, **({"dense": 20, "recent": 5} | options))


def units(generator: np.random.Generator, rows: int) -> NDArray[np.float32]:
    vectors = generator.standard_normal((rows, DIM)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 30)),
        st.tuples(st.just("remove"), st.integers(0, 2**31)),
        st.tuples(st.just("again"), st.integers(0, 2**31)),
        st.tuples(st.just("move"), st.integers(1, 20)),
        st.tuples(st.sampled_from(["build", "replace", "settle", "sort"]), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=80)
@given(operations=OPERATIONS, seed=st.integers(0, 100))
def test_same_as_one_flat_index(operations: list[tuple[str, int]], seed: int) -> None:
    generator = np.random.default_rng(seed)
    index, model = tiered(), FlatIndex(DIM)
    there: list[int] = []
    following = 0
    built = None
    for name, number in operations:
        if name == "add":
            ids = np.arange(following, following + number)
            following += number
            vectors = units(generator, number)
            index.add(vectors, ids)
            model.add(vectors, ids)
            there += ids.tolist()
        elif name == "remove" and there:
            gone = sorted({there[number % len(there)], there[number // 7 % len(there)], 10**6})
            assert index.remove(gone) == model.remove(gone) == len(gone) - 1
            there = [id for id in there if id not in gone]
        elif name == "again" and there:
            # A vector that changed: it goes and comes under the same id.
            changed = np.array([there[number % len(there)]])
            vector = units(generator, 1)
            for one in (index, model):
                one.remove(changed)
                one.add(vector, changed)
        elif name == "move":
            index.move(number)
        elif name == "build" and index.needs_building:
            built = index.build()
        elif name == "replace" and built is not None:
            index.replace(built)
            built = None
        elif name == "settle":
            index.settle()
            assert index.waiting == 0
            assert not index.needs_building
        elif name == "sort":
            index.sort()
        assert len(index) == len(model) == len(there)
        asked = units(generator, 3)
        kept = np.sort(generator.permutation(following)[: following // 2])
        every = np.arange(following)
        marks = np.isin(every, kept)
        options: list[dict[str, Any]] = [{}, {"among": Among(kept)}, {"among": Among(kept), "aim": 1.0}]
        for option in (*options, {"among": Among(every, marks), "aim": 1.0}):
            found, right = (one.search(asked, 8, **option) for one in (index, model))
            np.testing.assert_array_equal(found.ids, right.ids)
            np.testing.assert_allclose(found.scores, right.scores, atol=1e-6)


def test_few_vectors_have_one_tier_and_many_two() -> None:
    generator = np.random.default_rng(0)
    index = tiered()
    index.add(units(generator, 20), np.arange(20))
    assert (index.waiting, index.needs_building) == (0, False)
    index.settle()
    assert index.tiers[1] is None
    index.add(units(generator, 1), [20])
    assert (index.waiting, index.needs_building) == (16, True)
    index.settle()
    recent, long_term = index.tiers
    assert long_term is not None
    assert (len(recent), len(long_term), index.waiting) == (5, 16, 0)
    assert recent.stored(0, 99)[0].tolist() == [16, 17, 18, 19, 20], "the newest stay"
    index.add(units(generator, 40), np.arange(21, 61))
    assert not index.needs_building
    assert index.move(30) == 30
    assert index.move(30) == 10
    assert index.move(30) == 0
    assert recent.stored(0, 999)[0].tolist() == [56, 57, 58, 59, 60]


def test_an_outgrown_index_is_made_anew() -> None:
    made: list[int] = []

    def make(count: int) -> LongTermIndex:
        made.append(count)
        return FlatIndex(DIM)

    generator = np.random.default_rng(0)
    index = tiered(make)
    for first in range(0, 1000, 10):
        index.add(units(generator, 10), np.arange(first, first + 10))
        index.settle()
    assert made[0] == 30
    for smaller, larger in itertools.pairwise(made):
        assert OUTGROWN * (smaller - 5) <= larger <= (OUTGROWN + 1) * smaller
    assert len(made) == 3


def test_filling_goes_straight_to_where_vectors_belong() -> None:
    generator = np.random.default_rng(0)
    merged: list[bool] = []

    class Told(FlatIndex):
        def merge(self, *, whole: bool = False) -> None:
            merged.append(whole and len(self) == 33)

    index = tiered(lambda count: Told(DIM))
    portions = [(units(generator, 30), np.arange(30)), (units(generator, 3), np.arange(30, 33)), None]
    index.fill(33, lambda: portions.pop(0))
    assert merged == [True]
    assert len(index.tiers[0]) == 0
    small = tiered()
    portions = [(units(generator, 3), np.arange(3)), None]
    small.fill(3, lambda: portions.pop(0))
    assert small.tiers[1] is None
    assert len(small) == 3


def test_hashed_long_term_tier_finds_what_it_should(tmp_path: Path) -> None:
    data = clustered(6000, 100, dim=32, centres=60, noise=0.1)
    index = TieredIndex(32, make=lambda count: LSHIndex(32, expected=count), dense=1000, recent=100)
    model = FlatIndex(32)
    for first in range(0, 6000, 500):
        part = slice(first, first + 500)
        ids = np.arange(first, first + 500)
        index.add(data.vectors[part], ids)
        model.add(data.vectors[part], ids)
        index.move(200)
        if index.needs_building:
            assert index.replace(index.build())
        right = model.search(data.queries, 10).ids
        found = index.search(data.queries, 10).ids
        shared = [len(set(a) & set(b)) for a, b in zip(found.tolist(), right.tolist(), strict=True)]
        assert np.mean(shared) > 9.5
    assert isinstance(index.tiers[1], LSHIndex)
    index.generation = 7
    index.save(tmp_path / "a.lshindex")
    again = LSHIndex.load(tmp_path / "a.lshindex")
    assert (len(again), again.generation, again.tail) == (6000, 7, 0)
    assert index.recent == 100, "as before"


def test_a_search_that_began_before_finds_what_is_moved_meanwhile() -> None:
    """It has taken the tiers, and reads them when another long-term index is in place."""
    vectors = units(np.random.default_rng(0), 60)
    index = tiered()
    index.add(vectors, np.arange(60))
    recent, long_term = index.tiers
    assert index.needs_building
    assert index.replace(index.build())
    assert long_term is None
    assert recent.search(vectors, 1).ids[:, 0].tolist() == list(range(60))
    assert index.search(vectors, 1).ids[:, 0].tolist() == list(range(60))
    assert len(index.tiers[0]) == 5


def test_a_vector_is_found_at_every_moment() -> None:
    """Searches take no lock while vectors move from tier to tier."""
    generator = np.random.default_rng(0)
    vectors = units(generator, 4000)
    index = tiered(dense=200, recent=50)
    index.add(vectors[:300], np.arange(300))
    added, stop, wrong = [300], threading.Event(), []

    def search() -> None:
        random = np.random.default_rng(1)
        while not stop.is_set():
            asked = random.integers(0, added[0], 5)
            found = index.search(vectors[asked], 3)
            if found.ids[:, 0].tolist() != asked.tolist() or (np.diff(np.sort(found.ids, axis=1)) == 0).any():
                wrong.append((asked, found))

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    while added[0] < 4000:
        first = added[0]
        index.add(vectors[first : first + 100], np.arange(first, first + 100))
        added[0] += 100
        if index.needs_building:
            index.replace(index.build())
        while index.move(37):
            pass
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_built_index_is_not_used_where_vectors_moved_meanwhile() -> None:
    generator = np.random.default_rng(0)
    index = tiered()
    index.add(units(generator, 30), np.arange(30))
    index.settle()
    index.add(units(generator, 200), np.arange(30, 230))
    index.move(195)
    index.add(units(generator, 50), np.arange(230, 280))
    assert index.needs_building
    built = index.build()
    index.move(10)
    assert not index.replace(built)
    assert len(index) == 280
    assert index.replace(index.build())
    assert len(index) == 280


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="dense must be at least 1"):
        tiered(dense=0)
    with pytest.raises(ValueError, match="recent must be at least 0"):
        tiered(recent=-1)
