"""Random interleavings of everything against a plain dictionary."""

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

from memory.errors import UndoError, UnknownMemoryError
from memory.persistence.sqlite import places, search
from memory.persistence.sqlite.database import SqliteDatabase
from memory.query import Filter
from memory.types import Memory

LABELS = ["cup", "car", "tür", "a'b\"c"]
COORDINATES = st.floats(-1e6, 1e6, allow_nan=False)

memories = st.builds(
    lambda **values: Memory(**values),
    time_ns=st.integers(-(2**63), 2**63 - 1) | st.integers(0, 20),
    position=st.tuples(COORDINATES, COORDINATES, COORDINATES),
    yaw=st.floats(-4, 4),
    map_id=st.sampled_from(["a", "b"]),
    kind=st.sampled_from(["object", "note"]),
    label=st.sampled_from(LABELS),
    # Without letters that could spell a label.
    caption=st.text(
        st.characters(blacklist_characters="\0cupar", blacklist_categories=["Cs", "Lu"]), max_size=20
    ),
    embedding=st.none() | st.integers(0, 5).map(lambda at: np.eye(6, dtype=np.float32)[at]),
    confidence=st.sampled_from([0.0, 0.5, 1.0]),
    payload=st.dictionaries(st.text(st.characters(blacklist_categories=["Cs"]), max_size=3), st.integers()),
    marked=st.booleans(),
    count=st.integers(1, 9),
    visits=st.lists(st.integers(0, 9), max_size=4, unique=True).map(
        lambda times: [(3 * time, 3 * time + time % 3, 1 + time) for time in sorted(times)]
    ),
)


class Store(RuleBasedStateMachine):
    """The database beside ``rows``, the model; ``past`` holds the model before each operation."""

    def __init__(self) -> None:
        super().__init__()
        # In RAM where there is such a folder: thousands of commits, and none has to outlive the machine.
        memory = "/dev/shm"
        self.folder = Path(tempfile.mkdtemp(dir=memory if os.path.isdir(memory) else None))
        self.rows: dict[int, Memory] = {}
        self.past: dict[int, dict[int, Memory]] = {}
        self.next_id = 1
        self.erased: set[int] = set()
        self.database: SqliteDatabase
        self.patch = pytest.MonkeyPatch()
        for module, name, value in (
            (places, "TAIL", 4), (places, "BLOCK", 2), (places, "RUN", 8), (places, "SMALL_RUNS", 2),
            (search, "FEW", 2), (search, "PROBES", 1), (search, "STRETCH", 2),
        ):  # fmt: skip
            self.patch.setattr(module, name, value)

    @initialize()
    def open(self) -> None:
        self.database = SqliteDatabase.open(self.folder, dim=6)

    def teardown(self) -> None:
        if hasattr(self, "database"):
            assert self.database.check().ok
            self.database.close()
        self.patch.undo()
        shutil.rmtree(self.folder)

    def note(self, generation: int, rows: dict[int, Memory]) -> None:
        self.past[generation] = self.rows
        self.rows = rows

    def some(self, data: Any) -> list[int]:
        return data.draw(st.lists(st.sampled_from(sorted(self.rows)), unique=True, max_size=4))

    @rule(rows=st.lists(memories, min_size=1, max_size=4))
    def add(self, rows: list[Memory]) -> None:
        ids = self.database.add(rows)
        assert ids == list(range(self.next_id, self.next_id + len(rows)))
        self.next_id += len(rows)
        new = {id: dataclasses.replace(row, id=id) for id, row in zip(ids, rows, strict=True)}
        self.note(self.database.generation, self.rows | new)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def remove(self, data: Any) -> None:
        ids = self.some(data)
        generation = self.database.remove(ids)
        self.note(generation, {id: row for id, row in self.rows.items() if id not in ids})

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def erase(self, data: Any) -> None:
        id = data.draw(st.sampled_from(sorted(self.rows)))
        generation = self.database.remove([id], secure=True)
        self.erased.add(id)
        self.note(generation, {other: row for other, row in self.rows.items() if other != id})

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), row=memories)
    def merge(self, data: Any, row: Memory) -> None:
        ids = self.some(data)
        applied = self.database.apply(add=[row], remove=ids, operation="merge")
        assert applied.ids == [self.next_id]
        kept = {id: old for id, old in self.rows.items() if id not in ids}
        self.note(applied.generation, kept | {self.next_id: dataclasses.replace(row, id=self.next_id)})
        self.next_id += 1

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), row=memories)
    def update(self, data: Any, row: Memory) -> None:
        id = data.draw(st.sampled_from(sorted(self.rows)))
        new = dataclasses.replace(row, id=id)
        self.note(self.database.update([new]), self.rows | {id: new})

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), place=st.tuples(COORDINATES, COORDINATES, COORDINATES))
    def repose(self, data: Any, place: tuple[float, float, float]) -> None:
        ids = self.some(data)
        generation = self.database.repose(ids, np.tile(place, (len(ids), 1)), np.zeros(len(ids)))
        moved = {id: dataclasses.replace(self.rows[id], position=place, yaw=0.0) for id in ids}
        self.note(generation, self.rows | moved)

    @rule()
    def undo_the_last(self) -> None:
        generation = self.database.generation
        if generation not in self.past:
            return
        touched = set(self.rows.keys() ^ self.past[generation].keys())
        if touched & self.erased:
            with pytest.raises(UndoError, match="erased"):
                self.database.undo(generation)
            return
        before = self.past[generation]
        self.note(self.database.undo(generation), before)

    @rule(data=st.data())
    def undo_an_older_one_or_be_told_why_not(self, data: Any) -> None:
        if not self.past:
            return
        generation = data.draw(st.sampled_from(sorted(self.past)))
        rows = dict(self.rows)
        try:
            done = self.database.undo(generation)
        except UndoError:
            assert dict(self.rows) == rows
            return
        now = {row.id: row for row in self.database.get(self.database.ids())}
        # The ids that it touched are as before it; the rest is untouched.
        changes = self.database.changes(done - 1)
        touched = {*changes.added.tolist(), *changes.removed.tolist(), *changes.changed.tolist()}
        for id in touched:
            assert now.get(id) == self.past[generation].get(id)
        assert {id: row for id, row in now.items() if id not in touched} == {
            id: row for id, row in rows.items() if id not in touched
        }
        self.note(done, now)  # type: ignore[arg-type]

    @rule()
    def reopen(self) -> None:
        self.database.close()
        self.database = SqliteDatabase.open(self.folder)

    @rule(
        label=st.none() | st.sampled_from(LABELS),
        map_id=st.none() | st.sampled_from(["a", "b"]),
        span=st.none() | st.tuples(st.integers(0, 10), st.integers(10, 20)),
        box=st.none() | st.tuples(COORDINATES, COORDINATES).map(lambda c: (c[0], c[1], 1e6, 1e6)),
        words=st.booleans(),
    )
    def filter(self, label: str | None, map_id: str | None, span: Any, box: Any, words: bool) -> None:
        text = label if words and label in ("cup", "car") else None
        label = None if text else label
        labels = None if label is None else [label]
        query = Filter(text=text, labels=labels, map_id=map_id, between_ns=span, box=box)
        expected = [
            id
            for id, row in sorted(self.rows.items())
            if (label is None or row.label == label)
            and (text is None or row.label == text)
            and map_id in (None, row.map_id)
            and (span is None or span[0] <= row.time_ns <= span[1])
            and (box is None or (row.position[0] >= box[0] and row.position[1] >= box[1]))
        ]
        assert self.database.ids(query).tolist() == expected
        assert self.database.count(query) == len(expected)
        newest = sorted(expected, key=lambda id: (-self.rows[id].time_ns, -id))
        assert self.database.ids(query, order="newest", limit=2).tolist() == newest[:2]

    @rule(data=st.data())
    def changes(self, data: Any) -> None:
        if not self.past:
            return
        generation = data.draw(st.sampled_from(sorted(self.past)))
        then, changes = self.past[generation], self.database.changes(generation - 1)
        assert changes.added.tolist() == sorted(self.rows.keys() - then.keys())
        assert changes.removed.tolist() == sorted(then.keys() - self.rows.keys())
        really = {id for id in self.rows.keys() & then.keys() if self.rows[id] != then[id]}
        assert really <= set(changes.changed.tolist()) <= self.rows.keys() & then.keys()

    @invariant()
    def everything_is_as_in_the_model(self) -> None:
        if not hasattr(self, "database"):
            return
        assert self.database.ids().tolist() == sorted(self.rows)
        found = self.database.get(sorted(self.rows))
        assert found == [self.rows[id] for id in sorted(self.rows)]
        for row in found:
            expected = self.rows[row.id].embedding  # type: ignore[index]
            assert (row.embedding is None) == (expected is None)
            if expected is not None:
                np.testing.assert_array_equal(row.embedding, expected)
        with pytest.raises(UnknownMemoryError):
            self.database.get([self.next_id])


TestStore = Store.TestCase
TestStore.settings = settings(
    max_examples=30, stateful_step_count=20, suppress_health_check=list(HealthCheck)
)


@pytest.mark.slow
class TestStoreLonger(Store.TestCase):
    """The same for longer."""

    settings = settings(max_examples=300, stateful_step_count=60, suppress_health_check=list(HealthCheck))
