"""Import through observing: what matters is kept, with the reasons counted, and it can be gone on with."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from memory.config import ReservoirConfig, StoreConfig
from memory.errors import DataError
from memory.exchange import import_source, open_source
from memory.exchange.importing import CAUSES, DISPLACED, ImportReport, cause_of
from memory.observe.reservoir import Reservoir
from memory.persistence.sqlite.database import SqliteDatabase
from memory.query import Filter
from memory.store import Kept, MemoryStore
from memory.types import Memory
from memory.wording.reasons import FixedReason, FreeText

DIM = 4
CONFIG = StoreConfig(reservoir=ReservoirConfig(share=0.0, least=2))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    with MemoryStore.open(tmp_path / "store", dim=DIM, config=CONFIG) as opened:
        yield opened


def wall(count: int, **values: object) -> list[dict[str, object]]:
    """The same thing again and again, each more rewarding than the one before."""
    vector = [1.0, 0.0, 0.0, 0.0]
    return [
        {"time_ns": at, "label": "wall", "embedding": vector, "x": 0.5, "y": 0.5, "reward": at / 10, **values}
        for at in range(count)
    ]


def write(path: Path, records: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def bring(store: MemoryStore, path: Path, portion: int = 3) -> ImportReport:
    return import_source(store, open_source(path), portion=portion)


def kept_times(store: MemoryStore) -> list[int]:
    return [memory.time_ns for memory in store.find(Filter(), newest_first=False)]


def test_only_what_matters_is_kept_and_why_is_counted(store: MemoryStore, tmp_path: Path) -> None:
    known = Memory(time_ns=0, position=(0.5, 0.5, 0.0), label="wall", embedding=np.eye(4)[0])
    (before,), (ordinary,) = store.observe([known]), store.observe([known])
    other = wall(1, embedding=[0.0, 1.0, 0.0, 0.0])[0]
    marked = wall(1, marked=True)[0]
    path = write(tmp_path / "a.jsonl", [*wall(10), other, marked, wall(1, x=90)[0]])
    report = bring(store, path)
    assert (report.observed, report.lines) == (13, 13)
    assert report.displaced == 1  # The ordinary one of before.
    there = {memory.id for memory in store.find(Filter())}
    assert before.id in there
    assert ordinary.id not in there
    assert len(there) == len(store._observer._loaded())
    assert report.memories == len(there) - 1 == sum(report.why_kept.values())
    assert report.why_kept.items() >= {
        ("unlike everything unique at their place", 1),
        ("marked by the user", 1),
        ("the first of their kind at their place", 1),
    }
    assert sum(report.why_not.values()) == 13 - report.memories
    assert report.why_not[DISPLACED] >= 1
    assert json.dumps(report.to_json())
    told = store.explain(ordinary.id)  # type: ignore[arg-type]
    assert "imported from a.jsonl, lines 1 to 3; observed" in told.reasons[0]


def test_as_observing_itself(store: MemoryStore, tmp_path: Path) -> None:
    records = [dict(row, x=3.0 * (at % 4)) for at, row in enumerate(wall(40))]
    path = write(tmp_path / "a.jsonl", records)
    bring(store, path, portion=7)
    with MemoryStore.open(tmp_path / "other", dim=DIM, config=CONFIG) as other:
        memories = [
            Memory(
                time_ns=at, label="wall", embedding=np.eye(4)[0], position=(3.0 * (at % 4), 0.5, 0.0),
                reward=at / 10,
            )
            for at in range(40)
        ]  # fmt: skip
        other.observe(memories)
        assert kept_times(store) == kept_times(other)


def test_a_second_time_nothing_is_scored_again(store: MemoryStore, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", wall(10))
    first = bring(store, path)
    assert len(first.operations) == 4  # Also those of which nothing was kept are known.
    seen = store._observer._loaded().seen
    second = bring(store, path, portion=2)
    assert (second.known_lines, second.observed, second.memories, second.operations) == (10, 0, 0, [])
    assert (store._observer._loaded().seen, kept_times(store)) == (seen, kept_times(store))
    # Stored as it is, it is known too; and what was taken back is not.
    store.undo(first.operations[-1])
    third = bring(store, path)
    assert (third.known_lines, third.observed) == (9, 1)
    store.close()
    with SqliteDatabase.open(store.folder) as database:
        assert import_source(database, open_source(path)).known_lines == 10


def test_an_interruption_is_gone_on_from(store: MemoryStore, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", wall(20))

    def interrupt(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_source(store, open_source(path), portion=2, progress=interrupt)
    store.close()
    with MemoryStore.open(store.folder) as again:
        report = bring(again, path)
        assert 0 < report.known_lines < 20
        assert report.known_lines + (report.observed or 0) == 20
        whole = kept_times(again)
    with MemoryStore.open(tmp_path / "whole", dim=DIM, config=CONFIG) as other:
        bring(other, path)
        assert kept_times(other) == whole


def test_bad_lines_name_their_place_and_what_was_before_them_is_kept(
    store: MemoryStore, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.jsonl", [*wall(2), {"time_ns": 5, "embedding": [1.0]}])
    with pytest.raises(DataError, match=r"a\.jsonl:3: embedding has 1 numbers"):
        bring(store, path)
    assert kept_times(store) == [0, 1]


def test_every_reason_has_its_sort() -> None:
    """All that the reservoir and the store say."""
    reservoir = Reservoir(ReservoirConfig(share=0.0, least=2))
    unit = np.eye(4, dtype=np.float32)
    track = {"tracks": {"drive/1": [0, 10**9]}}
    memory = Memory(time_ns=0, position=(0.0, 0.0, 0.0), label="cup", importance=0.5)
    offers = [
        memory,
        dataclasses.replace(memory, embedding=unit[0]),
        dataclasses.replace(memory, embedding=unit[1]),
        dataclasses.replace(memory, marked=True),
        dataclasses.replace(memory, importance=0.1),
        dataclasses.replace(memory, count=3, payload=track),
        *(dataclasses.replace(memory, kind="event", time_ns=at) for at in (0, 10**14)),
        *(dataclasses.replace(memory, time_ns=10**15, importance=value) for value in (0.4, 0.5, 0.6, 0.1)),
    ]
    said = [reservoir.offer(at, one, one.importance or 0.0) for at, one in enumerate(offers)]
    reasons = [decision.why for decision in said] + [FixedReason(sort="displaced")]
    causes = [cause_of(Kept(None, reason, 0.5)) for reason in reasons]
    assert set(causes) == set(CAUSES.values())
    assert cause_of(Kept(None, FreeText(text="something new"), 0.5)) == "other reasons"
