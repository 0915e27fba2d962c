"""Questions about time to a store that merged what it saw, against one that kept every sight."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from memory.config import StoreConfig
from memory.merging import MergeOptions, fuse
from memory.query import Filter
from memory.questions import Questions
from memory.store import MemoryStore
from memory.types import Memory

S = 10**9
DAY = 86_400 * S
START = 20_000 * DAY
DIM = 4
CUP = np.eye(DIM, dtype=np.float32)[0]


def seen(at_s: float, label: str = "Cup", x: float = 0.0, **values) -> Memory:
    return Memory(time_ns=START + round(at_s * S), label=label, position=(x, 0.0, 0.0), **values)


def times_of_days(rng: np.random.Generator) -> list[float]:
    """Seconds of sights in some visits a day, over days."""
    found = []
    for day in range(5):
        for _ in range(int(rng.integers(0, 4))):
            begin = day * 86_400 + int(rng.integers(80_000))
            found += [begin + 13.0 * step for step in range(int(rng.integers(1, 6)))]
    return found or [0.0]


def same(one: object, other: object) -> bool:
    """Answers to how often, whatever the number of memories behind them."""
    return dataclasses.replace(one, memories=0) == dataclasses.replace(other, memories=0)  # type: ignore[type-var]


@pytest.mark.parametrize("seed", range(3))
def test_a_merged_store_answers_as_one_that_kept_everything(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [
        seen(at, label, x, embedding=CUP)
        for label, x in (("Cup", 0.0), ("Mug", 50.0))
        for at in times_of_days(rng)
    ]
    order = rng.permutation(len(rows))
    config = StoreConfig(merging=MergeOptions(default_sigma_m=0.3))
    with (
        MemoryStore.open(tmp_path / "dense", dim=DIM) as dense,
        MemoryStore.open(tmp_path / "merged", dim=DIM, config=config) as merged,
    ):
        dense.add(rows)
        # In several rounds, each of which merges what earlier ones merged.
        for part in np.array_split(order, 3):
            merged.add([rows[row] for row in part])
            merged.consolidate()
        assert len(merged) == len({row.label for row in rows})
        every, one = Questions(dense), Questions(merged)
        for what in ("Cup", "Mug", CUP):
            for gap_s in (60.0, 600.0, 40_000.0):
                assert same(every.how_often(what, gap_s=gap_s), one.how_often(what, gap_s=gap_s))
        for day in range(5):
            between = (START + day * DAY, START + (day + 1) * DAY - 1)
            for what in ("Cup", CUP):
                assert same(
                    every.how_often(what, between_ns=between), one.how_often(what, between_ns=between)
                )
            there = {memory.label for memory in every.between(*between).memories}
            happened = one.between(*between)
            assert {memory.label for memory in happened.memories} == there
            assert happened.total == len(there)


def test_between_finds_a_visit_and_not_the_pause_between_two(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path, dim=DIM) as store:
        store.add([seen(at) for at in (0, 20, 5000, 5030, 90_000)])
        store.add([seen(4000, "Chair", 9.0)])
        store.consolidate()
        assert len(store) == 2
        ask = Questions(store)

        def found(first_s: float, last_s: float, **values) -> list[str]:
            happened = ask.between(START + round(first_s * S), START + round(last_s * S), **values)
            assert happened.total >= len(happened.memories)
            return [memory.label for memory in happened.memories]

        assert found(0, 0) == found(20, 100) == found(15, 16) == ["Cup"]
        assert found(21, 3999) == found(5030.1, 89_999) == found(90_001, 1e9) == []
        assert found(4000, 5000) == ["Chair", "Cup"], "in the order in which they were seen then"
        assert found(0, 1e6) == ["Cup", "Chair"]
        assert found(0, 1e6, limit=1) == ["Cup"]
        assert ask.between(START, START + 90_000 * S, limit=1).total == 2
        assert (
            found(0, 1e6, labels=["Chair"]) == found(3999, 4001, near=(9.0, 0.0), radius_m=1.0) == ["Chair"]
        )
        assert found(0, 20, text="cup") == found(0, 20, near=(0.0, 0.0), radius_m=1.0) == ["Cup"]
        assert (
            found(0, 20, labels=["Chair"]) == found(0, 20, map_id="attic") == found(0, 20, text="chair") == []
        )
        said = str(ask.between(START + 10 * S, START + 300 * S))
        assert "Cup (memory 7) on 2024-10-04 00:00:10 UTC" in said
        (memory,) = ask.between(START, START).to_json()["memories"]
        assert memory["visits"][0] == [START, START + 20 * S, 2]


def test_between_against_a_loop(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    with MemoryStore.open(tmp_path, dim=DIM) as store:
        rows = []
        for thing in range(40):
            sights = [seen(float(at), f"thing {thing}") for at in rng.choice(50_000, int(rng.integers(1, 9)))]
            rows += [fuse(sights)] if rng.random() < 0.6 else sights
        rows = [dataclasses.replace(row, id=id) for row, id in zip(rows, store.add(rows), strict=True)]
        ask = Questions(store)
        for _ in range(60):
            first, last = (START + int(edge) * S for edge in sorted(rng.choice(50_000, 2)))
            inside = []
            for row in rows:
                spans = [visit[:2] for visit in row.visits] or [(row.time_ns, row.time_ns)]
                moments = [max(begin, first) for begin, end in spans if begin <= last and end >= first]
                inside += [(min(moments), row.id)] if moments else []
            limit = int(rng.integers(1, 30))
            happened = ask.between(first, last, limit=limit)
            assert [memory.id for memory in happened.memories] == [id for _, id in sorted(inside)][:limit]
            assert happened.total == len(inside)


def test_how_often_by_id_and_at_the_edges_of_a_time(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path, dim=DIM) as store:
        store.add([seen(10.0 * step) for step in range(11)] + [seen(1000)])
        ((id, _),) = store.consolidate().merged
        ask = Questions(store)
        found = ask.how_often(id, between_ns=(START + 50 * S, START + 999 * S))
        assert (found.sightings, found.visits, found.total_s) == (6, 1, 50.0), "half of eleven, rounded"
        assert (found.first_ns, found.last_ns) == (START + 50 * S, START + 100 * S)
        none = ask.how_often(id, between_ns=(START + 101 * S, START + 999 * S))
        assert (none.memories, none.sightings, none.visits, none.first_ns) == (0, 0, 0, None)
        assert ask.how_often("Cup", between_ns=(START + 101 * S, START + 999 * S)).sightings == 0
        assert (ask.how_often("Cup").sightings, ask.how_often("Cup", gap_s=1).visits) == (12, 2)


def test_undoing_a_merge_brings_every_sight_back_and_redoing_it_the_visits(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path, dim=DIM) as store:
        store.add([seen(at) for at in (0, 20, 5000)])
        done = store.consolidate()
        ((id, _),) = done.merged
        visits = store.get([id])[0].visits
        assert [visit.sights for visit in visits] == [2, 1]
        undone = store.undo(done.generations[0])
        assert [memory.visits for memory in store.find(Filter())] == [(), (), ()]
        assert Questions(store).between(START + 1, START + 9 * S).total == 0
        store.undo(undone)
        assert store.get([id])[0].visits == visits
        assert Questions(store).between(START + 1, START + 9 * S).total == 1


def test_a_time_is_needed(tmp_path: Path) -> None:
    with (
        MemoryStore.open(tmp_path, dim=DIM) as store,
        pytest.raises(ValueError, match="give between_ns"),
    ):
        store.find_seen(Filter())
