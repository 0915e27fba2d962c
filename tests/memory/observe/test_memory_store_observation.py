"""Observing into a store: what is kept, displaced, counted and explained."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from cups import DIM, axis, cup

from memory.config import ReservoirConfig, StoreConfig
from memory.query import Filter
from memory.store import MemoryStore
from memory.types import Memory


def parked_day(unique: int) -> tuple[list[Memory], set[int]]:
    """A view of one wall every 8 seconds for a day, with rare events and marks; rows that must be kept."""
    random = np.random.default_rng(1)
    wall = random.standard_normal(DIM)
    rows, needed = [], set()
    special = random.choice(np.arange(1, 10_800), 2 * unique, replace=False)
    basis = np.linalg.qr(np.c_[wall, random.standard_normal((DIM, DIM - 1))])[0]
    for at in range(10_800):
        vector, label, marked = basis[:, 0] + 0.05 * random.standard_normal(DIM), "wall", False
        place = np.flatnonzero(special == at)
        if len(place) and place[0] < unique:
            vector = basis[:, 1 + int(place[0])] + 0.02 * random.standard_normal(DIM)
            needed.add(at)
        elif len(place):
            marked = True
            needed.add(at)
        rows.append(cup(8 * at, 0.1, embedding=vector, label=label, marked=marked, kind="event"))
    return rows, needed


def test_a_day_parked_in_front_of_one_wall_shrinks_and_loses_no_event(store: MemoryStore) -> None:
    rows, needed = parked_day(unique=12)
    kept = []
    for start in range(0, len(rows), 1200):
        kept += store.observe(rows[start : start + 1200])
    assert len(kept) == len(rows)
    assert len(rows) >= 100 * len(store)
    stored = {memory.time_ns for memory in store.find(Filter())}
    assert {rows[at].time_ns for at in needed} <= stored
    # What was said is what is there, but for those that better ones of later calls displaced.
    said = {rows[at].time_ns for at, one in enumerate(kept) if one.id is not None}
    assert stored <= said
    assert len(store) == len(store._observer._loaded())
    assert {one.reason for one in kept if one.id is None} != set()
    assert all(0.0 <= one.importance <= 1.0 for one in kept)


def test_an_observation_is_explained_by_its_importance(store: MemoryStore) -> None:
    first, second = store.observe([cup(marked=True), cup(0.1)])
    assert first.id is not None
    assert second.id is None
    assert "others are more important" in second.reason
    told = store.explain(first.id)
    assert told.status == "kept"
    assert told.reasons[0] == "it is marked, so it is never forgotten automatically"
    assert any("the first of its kind at this place; importance 1.00" in reason for reason in told.reasons)
    assert any("marked by the user" in reason for reason in told.reasons)
    assert told.parts["importance"] == first.importance == 1.0


def test_what_displaces_is_explained_and_can_be_undone(location: Path | str) -> None:
    config = StoreConfig(reservoir=ReservoirConfig(share=0.0, least=2))
    with MemoryStore.open(location, dim=DIM, config=config) as store:
        (first,) = store.observe([cup()])
        (second,) = store.observe([cup(1, reward=0.1)])
        (third,) = store.observe([cup(2, reward=5.0)])
        assert first.id is not None  # It is unique.
        assert third.id is not None
        assert [memory.id for memory in store.find(Filter(), newest_first=False)] == [first.id, third.id]
        told = store.explain(second.id)  # type: ignore[arg-type]
        assert told.status == "forgotten"
        assert "replaced by more important observations" in told.reasons[0]
        assert "displaced" not in store.explain(third.id).history[0][2]
        store.undo(store.generation)
        assert [memory.id for memory in store.find(Filter(), newest_first=False)] == [first.id, second.id]
        # What was taken back leaves its room; within one call the better one wins at once.
        kept = store.observe([cup(3, reward=1.0), cup(4, reward=2.0)])
        assert kept[0].id is None
        assert kept[0].reason == "replaced by a more important one"
        assert kept[1].id is not None


def test_what_was_forgotten_is_new_when_it_is_seen_again(store: MemoryStore) -> None:
    (first,) = store.observe([cup()])
    assert store.observe([cup(1)])[0].id is None
    store.forget([first.id])  # type: ignore[list-item]
    (again,) = store.observe([cup(2)])
    assert again.id is not None
    assert "the first cup" in again.reason


def test_a_merged_memory_stands_for_its_sources_when_they_are_seen_again(store: MemoryStore) -> None:
    kept = store.observe([cup(0, 1.9), cup(1, 2.1, marked=True)])
    assert all(one.id is not None for one in kept)
    done = store.consolidate(now_ns=0)
    assert len(done.merged) == 1
    assert store.observe([cup(2, 1.9)])[0].id is None


def test_a_failed_observation_leaves_the_reservoir_as_it_was(store: MemoryStore) -> None:
    with pytest.raises(ValueError, match="JSON"):
        store.observe([cup(), cup(payload={"a": float("nan")}, label="other")])
    assert len(store) == 0
    (again,) = store.observe([cup()])
    assert again.id == 1
    assert store._observer._loaded().kept.tolist() == [1]


def test_novelty_is_judged_by_the_same_map(store: MemoryStore) -> None:
    store.add([cup(), cup(map_id="attic", embedding=axis(3))])
    here, there = store.observe([cup(embedding=axis(3)), cup(map_id="attic", embedding=axis(3))])
    assert here.importance > there.importance + 0.4


def test_the_reservoir_is_restored_at_the_next_start(tmp_path: Path) -> None:
    rows, _ = parked_day(unique=3)
    rows = rows[:1200]
    with MemoryStore.open(tmp_path / "once", dim=DIM) as store:
        for start in range(0, 1200, 300):
            store.observe(rows[start : start + 300])
        whole = [memory.time_ns for memory in store.find(Filter())]
    for start in range(0, 1200, 300):
        with MemoryStore.open(tmp_path / "often", dim=DIM) as store:
            store.observe(rows[start : start + 300])
    with MemoryStore.open(tmp_path / "often") as store:
        assert [memory.time_ns for memory in store.find(Filter())] == whole
    # Other squares are other places: nothing that was decided in the old ones counts.
    config = StoreConfig(reservoir=ReservoirConfig(cell_m=9.0))
    with MemoryStore.open(tmp_path / "often", config=config) as store:
        assert store.observe([rows[0]])[0].id is not None


def test_threads_observe_one_after_the_other(store: MemoryStore) -> None:
    kept: list[int | None] = []

    def watch(number: int) -> None:
        for at in range(10):
            kept.extend(one.id for one in store.observe([cup(at, 10.0 * number), cup(at, 10.0 * number + 5)]))

    threads = [threading.Thread(target=watch, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    there = [id for id in kept if id is not None]
    assert len(there) == len(set(there)) == len(store) == 8


def test_a_damaged_reservoir_is_as_none(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path, dim=DIM) as store:
        store.observe([cup()])
    (tmp_path / "reservoir.npz").write_bytes(b"damaged")
    with MemoryStore.open(tmp_path) as store:
        assert store.observe([cup(1)])[0].id is not None
        assert store.observe([cup(2)])[0].id is None
        store.forget([1], secure=True)
