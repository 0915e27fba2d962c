"""A batch of observations is judged as if each came alone."""

from __future__ import annotations

import dataclasses
import math
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memory.config import ImportanceWeights, ReservoirConfig, StoreConfig
from memory.index import Neighbours
from memory.observe import scores as observing
from memory.observe.scores import BatchScores, Neighbourhood
from memory.query import Filter
from memory.store import MemoryStore
from memory.types import Memory

DIM = 4
# Exact in half precision, so that equal products are equal.
VECTORS = [np.array(corner, dtype=np.float32) - 0.5 for corner in np.ndindex(2, 2, 2, 2)]

memories = st.builds(
    Memory,
    time_ns=st.integers(0, 3),
    position=st.tuples(st.sampled_from([0.5, 5.0]), st.just(0.0), st.just(0.0)),
    map_id=st.sampled_from(["a", "b"]),
    label=st.sampled_from(["cup", "car"]),
    embedding=st.none() | st.sampled_from(VECTORS),
    confidence=st.sampled_from([0.0, 0.5, 1.0]),
    reward=st.sampled_from([0.0, 1.0, 3.0]),
    marked=st.sampled_from([False, False, False, True]),
)


def one_by_one(store: MemoryStore, rows: list[Memory]) -> list[float]:
    return [store.observe([row])[0].importance for row in rows]


def numbered(rows: list[Memory]) -> list[Memory]:
    """Told apart by their payload."""
    return [dataclasses.replace(row, payload={"row": at}) for at, row in enumerate(rows)]


def what_is_there(store: MemoryStore) -> dict[int, float]:
    """Importance by number."""
    return {memory.payload["row"]: memory.importance or 0.0 for memory in store.find(Filter())}


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(
    rows=st.lists(memories, min_size=1, max_size=24).map(numbered),
    stored=st.integers(0, 8),
    block=st.sampled_from([1, 3, 256]),
    share=st.sampled_from([0.0, 0.5]),
    most=st.sampled_from([1, 3]),
)
def test_a_batch_is_judged_as_one_by_one(
    rows: list[Memory], stored: int, block: int, share: float, most: int
) -> None:
    config = StoreConfig(reservoir=ReservoirConfig(share=share, most=most, unique_below=0.3))
    base = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=base) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(observing, "BLOCK", block)
        patch.setattr(observing, "STORED", 1 if block == 1 else 4)
        with (
            MemoryStore.open(Path(folder) / "one", dim=DIM, config=config) as one,
            MemoryStore.open(Path(folder) / "many", dim=DIM, config=config) as many,
        ):
            for store in (one, many):
                one_by_one(store, rows[:stored])
            expected = one_by_one(one, rows[stored:])
            kept = many.observe(rows[stored:])
            assert [each.importance for each in kept] == pytest.approx(expected, abs=1e-6)
            assert what_is_there(many) == pytest.approx(what_is_there(one), abs=1e-6)
            there = what_is_there(many)
            assert [each.id is not None for each in kept] == [
                row.payload["row"] in there for row in rows[stored:]
            ]


def test_the_same_thing_twice_in_a_batch_is_new_once(tmp_path: Path) -> None:
    cup = Memory(time_ns=0, label="cup", embedding=np.eye(DIM)[0])
    with MemoryStore.open(tmp_path, dim=DIM) as store:
        first, second, other = store.observe([cup, cup, dataclasses.replace(cup, map_id="attic")])
        # Novelty counts 0.5, and the label is not rare any more: 0.2.
        assert first.importance - second.importance == pytest.approx(0.7, abs=1e-3)
        assert other.importance == pytest.approx(0.5, abs=1e-3)
        assert (first.id, second.id, other.id) == (1, None, 2)
        assert store.observe([cup])[0].importance == pytest.approx(second.importance, abs=1e-3)


def test_what_is_told_about_a_batch(tmp_path: Path) -> None:
    config = StoreConfig(reservoir=ReservoirConfig(share=0.0, least=2))
    cup = Memory(time_ns=0, label="cup", embedding=np.eye(DIM)[0])
    with MemoryStore.open(tmp_path, dim=DIM, config=config) as store:
        done = store.observe_logged([cup, cup])
        assert (done.generation, done.displaced) == (1, ())
        done = store.observe_logged([dataclasses.replace(cup, reward=9.0)], detail={"by": "hand"})
        assert (done.generation, done.displaced) == (2, (2,))
        assert store.log()[-1].detail["by"] == "hand"
        assert store.observe_logged([cup]).generation is None
        done = store.observe_logged([cup], detail={"by": "hand"})
        # The two sights that were not kept are counted by an operation before it.
        assert (done.generation, done.kept[0].id, len(store)) == (4, None, 2)
        assert [entry.operation for entry in store.log(2)] == ["seen", "observe"]
        assert (done.kept[0].like, done.kept[0].similarity) == (1, pytest.approx(1.0))
        assert store.get([1])[0].count == 4  # Itself, the displaced one, and two that were not kept.
        assert store.observe_logged([], detail={}).generation == 5
        assert store.log()[-1].operation == "observe"


def test_thousands_at_once_are_compared_with_each_other() -> None:
    """Against a loop over all that was kept, with random removals."""
    random = np.random.default_rng(0)
    rows = [
        Memory(time_ns=at, map_id="ab"[at % 2], embedding=None if at % 11 == 0 else vector)
        for at, vector in enumerate(random.standard_normal((3000, 8)))
    ]
    stored = random.standard_normal((50, 8)).astype(np.float32)
    stored /= np.linalg.norm(stored, axis=1, keepdims=True)

    def search(vectors: np.ndarray, k: int, map_id: str) -> Neighbours:
        scores = vectors @ stored.T
        order = np.argsort(-scores, axis=1)[:, :k]
        return Neighbours(np.take_along_axis(scores, order, 1), order)

    units = np.array([np.zeros(8) if row.embedding is None else row.embedding for row in rows])
    units /= np.maximum(np.linalg.norm(units, axis=1, keepdims=True), 1e-9)
    batch = BatchScores(rows, 8, search=search, counts={"thing": 50}, weights=ImportanceWeights())
    kept: list[int] = []
    there = set(range(50))
    for at, row in enumerate(rows):
        found = batch.similarity(at)
        if row.embedding is None:
            assert math.isnan(found)
        else:
            same = [other for other in kept if other % 2 == at % 2]
            others = np.concatenate([stored[sorted(there)], units[same]])
            assert found == pytest.approx(float((others @ units[at]).max()), abs=2e-3)
        if random.random() < 0.2:
            batch.keep(at)
            kept += [at] if row.embedding is not None else []
        if kept and random.random() < 0.05:
            batch.leave_out(kept.pop(int(random.integers(len(kept)))))
        if there and random.random() < 0.02:
            batch.forget(there.pop(), ["thing"])


def test_observations_without_vectors_are_compared_by_place() -> None:
    def row(x: float | None, label: str = "cup") -> Memory:
        place = None if x is None else (x, 0.0, 0.0)
        return Memory(time_ns=0, position=place, label=label, reward=0.5, confidence=0.5)

    def near(memory: Memory, radius_m: float) -> Neighbourhood:
        away = abs(memory.place[0])
        found = memory.label == "cup" and away <= radius_m
        return Neighbourhood(np.array([7] * found, np.int64), np.array([away] * found))

    rows = [row(0.5), row(1.5), row(None), row(1.0, "car")]
    batch = BatchScores(
        rows, DIM, search=None, counts={"cup": 1}, weights=ImportanceWeights(), near=near, near_m=2.0
    )
    assert [batch.similarity(at) for at in range(4)] == pytest.approx(
        [0.75, 0.25, math.nan, math.nan], nan_ok=True
    )
    assert batch.importance(0) == pytest.approx(batch.explain([0])[0].total)
    batch.keep(0)
    batch.forget(7, ["cup"])
    assert [batch.similarity(at) for at in (0, 1, 3)] == pytest.approx([1.0, 0.5, math.nan], nan_ok=True)
    batch.leave_out(0)
    assert math.isnan(batch.similarity(1))
