"""The same memories are answered alike in whatever order they were stored, and however many are asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memory import Memory, MemoryStore, Query, StoreConfig
from memory.index import FlatIndex, LSHIndex
from memory.index.kinds import KINDS
from memory.questions import Questions

QUERIES = (
    Query(text="red"),
    Query(text="red mug"),
    Query(text="where is the red mug", k=7),
    Query(text="where is the red mug", k=7, embedding=[1.0, 0.5, 0.0, 0.0]),
    Query(text="what was on the lamp", order="recency"),
    Query(embedding=[1.0, 1.0, 0.0, 0.0], k=3),
    Query(embedding=[1.0, 1.0, 0.0, 0.0], labels=["cup"], k=3),
    Query(near=(0.0, 0.0), k=5),
    Query(k=5),
)


def memories() -> list[Memory]:
    """Many of one time, of one place, of one text and of one vector, each in another combination."""
    random = np.random.default_rng(0)
    vectors = np.eye(4)[:, None] + np.eye(4)[None]
    return [
        Memory(
            time_ns=int(random.integers(0, 5)) * 10**9,
            position=(float(random.integers(0, 2)), 0.0, 0.0),
            map_id=str(random.choice(["home", "yard"])),
            label=str(random.choice(["cup", "lamp"])),
            caption=f"{random.choice(['a red', 'the blue', 'red red'])} {random.choice(['mug', 'lamp'])}",
            embedding=vectors[random.integers(0, 4), random.integers(0, 4)],
        )
        for _ in range(90)
    ]


def answers(place: Path | str, rows: list[Memory], index_from: int) -> list[list[tuple[Memory, float]]]:
    with MemoryStore.open(place, dim=4, config=StoreConfig(index_from=index_from)) as store:
        store.add(rows)
        found = [store.query(query, vectors=False) for query in QUERIES]
    return [[(replace(hit.memory, id=None), hit.score) for hit in hits] for hits in found]


@pytest.mark.parametrize("index_from", [10_000, 10])
def test_answers_follow_from_contents_and_not_from_the_order_of_storing(
    tmp_path: Path, index_from: int
) -> None:
    rows = memories()
    usual = answers(tmp_path / "usual", rows, index_from)
    assert all(usual)
    for seed in range(3):
        shuffled = [rows[at] for at in np.random.default_rng(seed).permutation(len(rows))]
        assert answers(tmp_path / f"{seed}", shuffled, index_from) == usual


@pytest.mark.slow
def test_on_a_server_too(location: Path | str, tmp_path: Path) -> None:
    rows = memories()
    here = answers(location, rows[::-1], 10_000)
    usual = answers(tmp_path / "usual", rows, 10_000)
    for query, mine, others in zip(QUERIES, here, usual, strict=True):
        if query.text in (None, "where is the red mug", "what was on the lamp"):
            assert [memory for memory, _ in mine] == [memory for memory, _ in others], query


def test_more_than_there_are_costs_no_more(tmp_path: Path, gpu_kinds_on_cpu: None) -> None:
    """A search has as many columns as there are rows: a hundred million would take more than a gigabyte."""
    many, vectors, wide = 10**8, np.eye(4, dtype=np.float32), np.eye(64, dtype=np.float32)[:4]
    for kind in KINDS.values():
        if kind.make is None or kind.missing:
            continue
        index = kind.make(64, 4)
        index.add(wide, [1, 2, 3, 4])
        assert index.search(wide[:1], many).ids.shape == (1, 4), kind.name
    for index in (FlatIndex(4), LSHIndex(4)):
        assert index.search(vectors[:1], many).ids.shape == (1, 1)
    with MemoryStore.open(tmp_path, dim=4) as store:
        assert store.search(vectors[:1], many).ids.shape == (1, 1)
        store.add([Memory(time_ns=at, caption="a cup", embedding=vectors[at]) for at in range(4)])
        assert store.search(vectors[:1], many).ids.shape == (1, 4)
        for query in (*QUERIES, Query(like=1), Query(text="cup")):
            for k in (many, 2**62):
                assert len(store.query(replace(query, k=k))) <= 4
        assert store.context(Query(embedding=vectors[0], k=many)).hits
        assert Questions(store).similar_situations(1, k=many)
