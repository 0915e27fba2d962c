"""Random histories of operations against a plain dictionary, with values at the ends of their ranges."""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory.config import StoreConfig
from memory.errors import UndoError, UnknownMemoryError
from memory.query import Filter, Query
from memory.store import MemoryStore
from memory.types import MOST_COUNT, Memory

DIM = 4
#: Exact in half precision, so that equal products are equal.
VECTORS = [np.array(corner, dtype=np.float32) - 0.5 for corner in np.ndindex(2, 2, 2, 2)]
PLACES = [0.0, 1e-320, 1e-170, 1e-9, 0.1, 0.1 + 1e-9, 3.0, 4.0, 1e200, -1e308]
TIMES = [-(2**63), -1, 0, 1, 5, 2**63 - 1]
FEW = {"time_ns": TIMES, "label": ["cup", "Car", ""], "map_id": ["a", "b"], "kind": ["object", "note"],
       "count": [1, 1, MOST_COUNT], "reward": [0.0, 1.7e308, -1.0], "importance": [None, 0.0, 1.0],
       "marked": [False, True], "confidence": [0.0, 0.5, 1.0], "state": ["present", "gone"],
       "payload": [{}, {"a": [1, {"b": None}]}], "embedding": [None, *VECTORS]}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else tmp_path))
    yield made
    shutil.rmtree(made)


class History:
    """A store beside ``rows``, which it has to agree with; ``past`` has the rows before each operation."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.rng = np.random.default_rng(seed)
        self.rows: dict[int, Memory] = {}
        self.past: dict[int, dict[int, Memory]] = {}
        self.store = MemoryStore.open(
            folder, dim=DIM, config=StoreConfig(index_from=int(self.pick([3, 999])))
        )

    def pick(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def some(self) -> list[int]:
        ids = sorted(self.rows)
        return [id for id in ids if self.rng.random() < 2.0 / len(ids)]

    def memory(self) -> Memory:
        values = {name: self.pick(choices) for name, choices in FEW.items()}
        caption = " ".join(self.pick(["red", "blue", "door"]) for _ in range(self.rng.integers(3)))
        position = (self.pick(PLACES), self.pick(PLACES), 0.0)
        return Memory(**values, caption=caption, position=position)

    def done(self, rows: dict[int, Memory]) -> None:
        self.past[self.store.generation] = self.rows
        self.rows = rows

    def add(self) -> None:
        new = [self.memory() for _ in range(self.rng.integers(1, 5))]
        ids = self.store.add(new)
        made = {id: dataclasses.replace(row, id=id) for id, row in zip(ids, new, strict=True)}
        self.done(self.rows | made)

    def forget(self) -> None:
        ids = self.some()
        self.store.forget(ids, secure=bool(ids) and self.rng.random() < 0.2)
        self.done({id: row for id, row in self.rows.items() if id not in ids})

    def mark(self) -> None:
        if ids := self.some():
            self.store.mark(ids, "moved")
            changed = {id: dataclasses.replace(self.rows[id], state="moved") for id in ids}
            self.done(self.rows | changed)

    def repose(self) -> None:
        if ids := self.some():
            x, y = self.pick(PLACES), self.pick(PLACES)
            self.store.repose(ids, [[x, y, 1.0]] * len(ids), [0.5] * len(ids))
            changed = {id: dataclasses.replace(self.rows[id], position=(x, y, 1.0), yaw=0.5) for id in ids}
            self.done(self.rows | changed)

    def undo(self) -> None:
        if not self.past:
            return
        last = max(self.past)
        generation = last if self.rng.random() < 0.7 else int(self.pick(sorted(self.past)))
        try:
            self.store.undo(generation)
        except UndoError:
            return
        before = self.past[generation]
        after = self.past.get(generation + 1, self.rows)
        touched = {id for id in before.keys() | after.keys() if before.get(id) != after.get(id)}
        kept = {id: row for id, row in self.rows.items() if id not in touched}
        self.done(kept | {id: before[id] for id in touched if id in before})

    def consolidate(self) -> None:
        # What becomes of what is for other tests: here nothing may fail, and nothing but its merges change.
        result = self.store.consolidate(now_ns=10)
        assert result.failed == {}
        there = {row.id or 0: row for row in self.store.find(Filter())}
        merged = {source for _, sources in result.merged for source in sources}
        assert there.keys() - self.rows.keys() == {id for id, _ in result.merged} - merged
        assert {id: row for id, row in self.rows.items() if id not in merged} == {
            id: row for id, row in there.items() if id in self.rows
        }
        self.rows, self.past = there, {}

    def reopen(self) -> None:
        self.store.close()
        self.store = MemoryStore.open(self.folder)

    def ask(self) -> None:
        near = self.pick([None, (0.0, 0.0), (0.1, 0.1), (3.0, 4.0), (-1e308, 0.0)])
        radius = None if near is None else self.pick([None, 0.0, 1e-200, 0.05, 5.0, 1e250])
        text = self.pick([None, None, "red", "DOOR blue"])
        like = self.pick(
            [None, None, *sorted(id for id, row in self.rows.items() if row.embedding is not None)]
        )
        polygon = self.pick([None, None, [(-1.0, -1.0), (5.0, -1.0), (5.0, 5.0), (-1.0, 5.0)]])
        labels = self.pick([None, ["cup", "Car"]])
        span = self.pick([None, (-1, 5), (-(2**63), 2**63 - 1)])
        order = self.pick([None, "recency"] + ["distance"] * (near is not None))

        def passes(row: Memory, radius: float | None) -> bool:
            x, y = row.position[:2]
            words = f"{row.label} {row.caption}".lower().split()
            return (
                (text is None or set(text.lower().split()) <= set(words))
                and (like is None or (row.embedding is not None and row.id != like))
                and (labels is None or row.label in labels)
                and (span is None or span[0] <= row.time_ns <= span[1])
                and (polygon is None or (-1 <= x <= 5 and -1 <= y <= 5))
                and (near is None or radius is None or math.hypot(x - near[0], y - near[1]) <= radius)
            )

        wanted, perhaps = (
            {id for id, row in self.rows.items() if passes(row, radius and radius * wider)}
            # On the rim rounding decides; there is none where the radius is 0.
            for wider in (1.0 - 1e-12, 1.0 + 1e-12)
        )
        query = Query(
            text=text, like=like, near=near, radius_m=radius, polygon=polygon, labels=labels, between_ns=span,
            order=order, k=1000,
        )  # fmt: skip
        hits = self.store.query(query)
        assert wanted <= {hit.memory.id for hit in hits} <= perhaps, query
        assert all(math.isfinite(hit.score) for hit in hits)
        if order == "recency":
            times = [hit.memory.time_ns for hit in hits]
            assert times == sorted(times, reverse=True)

    def check(self) -> None:
        found = {row.id: row for row in self.store.find(Filter())}
        assert found == self.rows
        for id, row in self.rows.items():
            vector = row.embedding
            assert (vector is None) == (found[id].embedding is None)

    def run(self, steps: int) -> None:
        operations = [self.add] * 4 + [self.forget, self.mark, self.repose, self.undo, self.undo]
        operations += [self.ask] * 6 + [self.consolidate, self.reopen]
        try:
            for step in range(steps):
                self.pick(operations)()
                if step % 10 == 9:
                    self.check()
            self.check()
            with pytest.raises(UnknownMemoryError):
                self.store.get([10**9])
            assert self.store.check().ok
        finally:
            self.store.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_short_history(folder: Path, seed: int) -> None:
    History(folder, seed).run(40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_a_history(folder: Path, seed: int) -> None:
    History(folder, 1000 + seed).run(150)
