"""Random interleavings of everything that a store does against a plain list."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from memory.config import StoreConfig
from memory.errors import UndoError, UnknownMemoryError
from memory.merging import propose_merges
from memory.query import Filter, Query
from memory.store import MemoryStore
from memory.types import Memory

DIM = 4
# Exact in half precision, so that equal products are equal.
VECTORS = [np.array(corner, dtype=np.float32) - 0.5 for corner in np.ndindex(2, 2, 2, 2)]
WORDS = ["red", "blue", "door"]

memories = st.builds(
    Memory,
    time_ns=st.integers(0, 5),
    position=st.tuples(st.sampled_from([0.0, 0.1, 5.0]), st.sampled_from([0.0, 0.1]), st.just(0.0)),
    map_id=st.sampled_from(["a", "b"]),
    kind=st.sampled_from(["object", "note"]),
    label=st.sampled_from(["cup", "car", ""]),
    caption=st.lists(st.sampled_from(WORDS), max_size=2).map(" ".join),
    embedding=st.none() | st.sampled_from(VECTORS),
    confidence=st.sampled_from([0.0, 0.5, 1.0]),
    marked=st.booleans(),
)


class Store(RuleBasedStateMachine):
    """The store beside ``rows``, the list; ``past`` holds the list before each operation."""

    def __init__(self) -> None:
        super().__init__()
        memory = "/dev/shm"
        self.folder = Path(tempfile.mkdtemp(dir=memory if os.path.isdir(memory) else None))
        self.rows: list[Memory] = []
        self.past: dict[int, list[Memory]] = {}
        self.ever = 0
        self.store: MemoryStore
        self.reader: MemoryStore | None = None

    @initialize(index_from=st.sampled_from([3, 1000]))
    def open(self, index_from: int) -> None:
        self.store = MemoryStore.open(self.folder, dim=DIM, config=StoreConfig(index_from=index_from))

    def teardown(self) -> None:
        if self.reader is not None:
            self.reader.close()
        if hasattr(self, "store"):
            assert self.store.check().ok
            self.store.close()
        shutil.rmtree(self.folder)

    def note(self, generation: int, rows: list[Memory]) -> None:
        assert generation == self.store.generation
        self.past[generation] = self.rows
        self.rows = sorted(rows, key=lambda row: row.id or 0)

    @rule(rows=st.lists(memories, min_size=1, max_size=5))
    def add(self, rows: list[Memory]) -> None:
        ids = self.store.add(rows)
        assert ids == list(range(self.ever + 1, self.ever + 1 + len(rows)))
        self.ever = ids[-1]
        new = [dataclasses.replace(row, id=id) for id, row in zip(ids, rows, strict=True)]
        self.note(self.store.generation, self.rows + new)

    @rule(rows=st.lists(memories, min_size=1, max_size=4))
    def observe(self, rows: list[Memory]) -> None:
        before = self.store.generation
        kept = self.store.observe(rows)
        self.store.flush()
        new = [
            dataclasses.replace(row, id=one.id, importance=one.importance)
            for row, one in zip(rows, kept, strict=True)
            if one.id is not None
        ]
        # Nothing that is marked, and nothing that is the first of its kind here, is left out.
        assert all(one.id is not None for row, one in zip(rows, kept, strict=True) if row.marked)
        entries = self.store.log(before)
        assert {entry.operation for entry in entries} <= {"observe", "seen"}
        there = {row.id: row for row in self.store.find(Filter())}
        gone = {row.id for row in self.rows} - set(there)
        # Sights are counted once: but for those that nothing stands for, none is lost.
        total = sum(row.count for row in self.rows) + len(rows)
        alone = sum(one.id is None and one.like is None for one in kept)
        lost = sum(row.count for row in self.rows if row.id in gone)
        assert total - alone - lost <= sum(row.count for row in there.values()) <= total - alone
        assert not any(row.marked for row in self.rows if row.id in gone)
        self.ever += len(new)
        assert [row.id for row in sorted(new, key=lambda row: row.id or 0)] == list(
            range(self.ever + 1 - len(new), self.ever + 1)
        )
        for entry in entries:
            self.past[entry.generation] = self.rows
            if entry.operation == "observe":
                self.rows = [row for row in self.rows if row.id not in gone] + new
        self.count_as_stored()

    def count_as_stored(self) -> None:
        """What sights change is as in the store, whose counts another property is about."""
        there = {row.id: row for row in self.store.find(Filter())}
        names = ("count", "first_seen_ns", "last_seen_ns", "visits")
        self.rows = [
            dataclasses.replace(row, **{name: getattr(there[row.id], name) for name in names})
            for row in sorted(self.rows, key=lambda row: row.id or 0)
            if row.id in there
        ]
        assert len(self.rows) == len(there)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), state=st.sampled_from(["present", "gone", "moved"]))
    def mark(self, data: Any, state: Any) -> None:
        id = data.draw(st.sampled_from([row.id for row in self.rows]))
        generation = self.store.mark([id], state)
        rows = [dataclasses.replace(row, state=state) if row.id == id else row for row in self.rows]
        self.note(generation, rows)
        del self.past[generation]
        self.past = {key: value for key, value in self.past.items() if not any(r.id == id for r in value)}

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def forget(self, data: Any) -> None:
        ids = data.draw(st.lists(st.sampled_from([row.id for row in self.rows]), unique=True, max_size=3))
        generation = self.store.forget(ids)
        self.note(generation, [row for row in self.rows if row.id not in ids])

    @rule()
    def consolidate(self) -> None:
        proposals = {}
        for map_id in sorted({row.map_id for row in self.rows}):
            rows = self.store.find(Filter(map_id=map_id), newest_first=False)
            for one in propose_merges(rows, gone_ns=self.store._care.gone_since(rows)):
                proposals[one.ids] = one.result
        start = self.store.generation
        done = self.store.consolidate(now_ns=10)
        assert {sources for _, sources in done.merged} == set(proposals)
        assert done.forgotten == {}
        after = {row.id: row for row in self.store.find(Filter())}
        for step, (result, sources) in enumerate(done.merged, start=1):
            self.ever += 1
            assert (result, done.generations[step - 1]) == (self.ever, start + step)
            expected = dataclasses.replace(proposals[sources], id=result)
            assert after[result] == expected
            self.past[start + step] = self.rows
            self.rows = [row for row in self.rows if row.id not in sources]
            self.rows.append(dataclasses.replace(expected, embedding=after[result].embedding))

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def undo(self, data: Any) -> None:
        generation = data.draw(st.sampled_from(sorted(self.past)))
        now = self.store.generation
        try:
            done = self.store.undo(generation)
        except UndoError:
            assert self.store.generation == now
            return
        if generation == now:
            self.note(done, self.past[generation])
            self.count_as_stored()
            return
        # What it touched is as it was; the rest stays.
        then = {row.id: row for row in self.past[generation]}
        following = self.past.get(generation + 1, self.rows)
        touched = {row.id for row in following} ^ set(then)
        rows = [row for row in self.rows if row.id not in touched]
        self.note(done, rows + [then[id] for id in touched if id in then])
        self.count_as_stored()

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), x=st.sampled_from([0.0, 7.0]))
    def repose(self, data: Any, x: float) -> None:
        id = data.draw(st.sampled_from([row.id for row in self.rows]))
        generation = self.store.repose([id], [[x, 1.0, 2.0]], [0.5])
        rows = [
            dataclasses.replace(row, position=(x, 1.0, 2.0), yaw=0.5) if row.id == id else row
            for row in self.rows
        ]
        self.note(generation, rows)
        # Its taking back is another property; here operations after it would be in the way of the model.
        del self.past[generation]
        self.past = {key: value for key, value in self.past.items() if not any(r.id == id for r in value)}

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = MemoryStore.open(self.folder)

    @rule()
    def open_or_close_a_reader(self) -> None:
        if self.reader is None:
            self.reader = MemoryStore.open(self.folder, readonly=True)
        else:
            self.reader.close()
            self.reader = None

    @rule(
        vector=st.sampled_from(VECTORS),
        text=st.none() | st.sampled_from(WORDS),
        map_id=st.none() | st.sampled_from(["a", "b"]),
        span=st.none() | st.just((1, 3)),
        radius=st.none() | st.sampled_from([0.05, 3.0]),
        order=st.sampled_from([None, "recency", "distance"]),
        k=st.sampled_from([1, 3, 100]),
    )
    def ask(
        self,
        vector: np.ndarray,
        text: str | None,
        map_id: str | None,
        span: tuple[int, int] | None,
        radius: float | None,
        order: Any,
        k: int,
    ) -> None:
        found = [
            row
            for row in self.rows
            if (text is None or text in row.caption.split())
            and map_id in (None, row.map_id)
            and (span is None or span[0] <= row.time_ns <= span[1])
            and (radius is None or row.position[0] ** 2 + row.position[1] ** 2 <= radius**2)
        ]
        scores: dict[int | None, float] = {}
        if order is None:
            # Merged vectors are no longer exact: close ones may change places.
            found = [row for row in found if row.embedding is not None]
            scores = {row.id: float(row.embedding @ vector) for row in found if row.embedding is not None}
        elif order == "recency":
            scores = {row.id: -float(row.time_ns) for row in found}
        else:
            scores = {row.id: float(np.hypot(*row.position[:2])) for row in found}
        query = Query(
            embedding=vector if order is None else None,
            text=text,
            map_id=map_id,
            between_ns=span,
            near=(0.0, 0.0),
            radius_m=radius,
            order=order,
            k=k,
        )
        for store in (self.store, self.reader):
            if store is None:
                continue
            ids = [hit.memory.id for hit in store.query(query)]
            best = sorted(scores.values(), reverse=order is None)[:k]
            # Equal ones are ordered by contents, never by id.
            close = pytest.approx(best, abs=2e-3) if order is None else best
            assert [scores[id] for id in ids] == close
            assert len(set(ids)) == len(ids)

    @invariant()
    def everything_is_as_in_the_list(self) -> None:
        if not hasattr(self, "store"):
            return
        for store in (self.store, self.reader):
            if store is not None:
                assert len(store) == len(self.rows)
                rows = sorted(store.find(Filter()), key=lambda row: row.id or 0)
                assert rows == sorted(self.rows, key=lambda row: row.id or 0)
        for id in range(1, self.ever + 1):
            there = any(row.id == id for row in self.rows)
            assert (self.store.explain(id).status in ("kept", "undone")) == there
        with pytest.raises(UnknownMemoryError):
            self.store.explain(self.ever + 1)


TestStoreModel = Store.TestCase
TestStoreModel.settings = settings(
    max_examples=15, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.slow
class TestStoreModelLonger(Store.TestCase):
    """The same for longer."""

    settings = settings(
        max_examples=200, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
    )
