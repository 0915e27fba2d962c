"""Tables of hash codes: what they find, and that nothing is missing while they change."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.index.base import TAIL_LIMIT
from memory.index.effort import Effort
from memory.index.evaluation import clustered, recall
from memory.index.flat import FlatIndex
from memory.index.lsh import LSHIndex

ROWS = 12_000
DATA = clustered(ROWS, 100, dim=64, centres=60, noise=0.1)


def both(rows: int = ROWS, **settings: Any) -> tuple[LSHIndex, FlatIndex]:
    index, exact = LSHIndex(64, expected=ROWS, **settings), FlatIndex(64)
    for known in (index, exact):
        known.add(DATA.vectors[:rows], np.arange(rows))
    return index, exact


def test_recall() -> None:
    index, exact = both()
    assert index.tail == 0
    assert recall(index.search(DATA.queries, 10).ids, exact.search(DATA.queries, 10).ids) > 0.95
    few = index.search(DATA.queries, 10, effort=Effort(10, 200))
    many = index.search(DATA.queries, 10, effort=Effort(400, 200))
    truth = exact.search(DATA.queries, 10).ids
    assert recall(few.ids, truth) < recall(many.ids, truth)


def test_fresh_rows_are_found_at_once() -> None:
    index, _ = both(5000)
    index.add(DATA.vectors[5000:5003], [5000, 5001, 5002])
    assert index.tail == 3
    assert index.search(DATA.vectors[5000:5003], 1).ids[:, 0].tolist() == [5000, 5001, 5002]
    index.merge()
    assert index.tail == 0
    assert index.search(DATA.vectors[5000:5003], 1).ids[:, 0].tolist() == [5000, 5001, 5002]


def test_many_portions_give_few_tables_and_the_same_recall() -> None:
    index, exact = LSHIndex(64, expected=ROWS), both()[1]
    for part in np.array_split(np.arange(ROWS), 37):
        index.add(DATA.vectors[part], part)
    assert index.tail <= TAIL_LIMIT
    assert len(index._state.buckets) <= 3
    assert recall(index.search(DATA.queries, 10).ids, exact.search(DATA.queries, 10).ids) > 0.95


def test_removed_rows_are_never_found() -> None:
    index, exact = both()
    gone = np.arange(0, ROWS, 2)
    for known in (index, exact):
        assert known.remove(gone) == len(gone)
        assert known.remove(gone) == 0
    assert len(index) == ROWS - len(gone)
    assert (index.search(DATA.queries, 10).ids % 2 == 1).all()
    assert recall(index.search(DATA.queries, 10).ids, exact.search(DATA.queries, 10).ids) > 0.95
    before = index.nbytes
    index.compact()
    assert index.nbytes < before
    assert (index.search(DATA.queries, 10).ids % 2 == 1).all()
    assert recall(index.search(DATA.queries, 10).ids, exact.search(DATA.queries, 10).ids) > 0.95
    index.remove(np.arange(ROWS))
    index.compact()
    assert index.search(DATA.queries, 3).ids.max() == -1


def test_copies_of_one_vector_do_not_hide_others() -> None:
    index = LSHIndex(64, expected=ROWS)
    vectors = np.concatenate([np.repeat(DATA.vectors[:1], 9000, axis=0), DATA.vectors[1:1001]])
    index.add(vectors, np.arange(10_000))
    assert index.search(DATA.vectors[:1], 4).ids.tolist() == [[0, 1, 2, 3]]
    assert (index.search(DATA.vectors[1:101], 1).ids[:, 0] == np.arange(9000, 9100)).all()


def test_same_seed_same_answers() -> None:
    answers = [both(seed=seed)[0].search(DATA.queries, 10, effort=Effort(60, 200)) for seed in (1, 1, 2)]
    assert (answers[0].ids == answers[1].ids).all()
    assert (answers[0].scores == answers[1].scores).all()
    assert not (answers[0].ids == answers[2].ids).all()


def test_codes_take_at_most_64_bytes() -> None:
    for functions in (20, 24):
        index, _ = both(5000, functions=functions)
        state = index._state
        assert state.codes.between(0, 1).nbytes + state.sketches.between(0, 1).nbytes <= 64


def test_searches_go_on_while_rows_come_and_go() -> None:
    index = LSHIndex(64, expected=ROWS)
    index.add(DATA.vectors[:3000], np.arange(3000))
    done, problems = threading.Event(), list[str]()

    def search() -> None:
        while not done.is_set():
            found = index.search(DATA.vectors[:40], 1).ids[:, 0].tolist()
            if found != list(range(40)):
                problems.append(f"found {found}")

    def merge() -> None:
        while not done.is_set():
            index.merge()

    threads = [
        threading.Thread(target=search),
        threading.Thread(target=search),
        threading.Thread(target=merge),
    ]
    for thread in threads:
        thread.start()
    for start in range(3000, ROWS, 500):
        index.add(DATA.vectors[start : start + 500], np.arange(start, start + 500), merge=False)
        index.remove(np.arange(start - 500, start - 450))
    index.compact()
    done.set()
    for thread in threads:
        thread.join()
    assert problems == []
    index.merge()
    assert index.tail == 0


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from("aarmc"), st.integers(0, 399), st.integers(1, 120)), max_size=12))
def test_any_order_of_changes(steps: list[tuple[str, int, int]]) -> None:
    """A query reads its own bucket, so that every known row finds itself, and no removed one is found."""
    index, model = LSHIndex(64, expected=16, functions=3, tables=3), set[int]()
    for step, first, count in steps:
        numbers = np.arange(first, min(first + count, 400))
        if step == "a":
            new = np.array([n for n in numbers.tolist() if n not in model], np.int64)
            index.add(DATA.vectors[new], new)
            model |= set(new.tolist())
        elif step == "r":
            assert index.remove(numbers) == len(model & set(numbers.tolist()))
            model -= set(numbers.tolist())
        elif step == "m":
            index.merge()
        else:
            index.compact()
    known = np.array(sorted(model), np.int64)
    found = index.search(DATA.vectors[known], 1, effort=Effort(1, 400))
    assert (found.ids[:, 0] == known).all()
    near = index.search(DATA.queries[:5], 6, effort=Effort(10**6, 400))
    assert set(near.ids.reshape(-1).tolist()) <= {*model, -1}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"expected": 0}, "expected must be at least 1"),
        ({"probes": 0}, "probes must be at least 1"),
        ({"rerank": 0}, "rerank must be at least 1"),
        ({"functions": 25}, "functions must be from 2 to 24"),
        ({"tables": 0}, "tables must be from 1"),
        ({"seed": -1}, "seed must not be negative"),
    ],
)
def test_bad_arguments(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LSHIndex(8, **settings)
