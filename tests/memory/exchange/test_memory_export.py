"""Export: what is asked for, in order, complete or not at all."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from memory.exchange import export_memories
from memory.exchange.exporting import export_format
from memory.persistence.sqlite.database import SqliteDatabase
from memory.query import Filter
from memory.types import Memory


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqliteDatabase]:
    rng = np.random.default_rng(0)
    rows = [
        Memory(time_ns=5000 - row, label="Car" if row % 3 else "door", embedding=rng.normal(size=4))
        for row in range(2500)
    ]
    with SqliteDatabase.open(tmp_path / "store", dim=4) as opened:
        opened.add(rows)
        yield opened


def test_a_filter_without_vectors_to_a_stream(database: SqliteDatabase) -> None:
    stream = io.StringIO()
    doors = Filter(labels=["door"], between_ns=(4001, 5000))
    assert export_memories(database, stream, format="jsonl", filter=doors, vectors=False) == 334
    records = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {record["label"] for record in records} == {"door"}
    assert "embedding" not in records[0]


def test_what_is_removed_meanwhile_is_left_out(database: SqliteDatabase, tmp_path: Path) -> None:
    def remove_more(done: int, total: int) -> None:
        if done == 1000:
            database.remove(database.ids(order="oldest").tolist()[1500:1600])

    assert export_memories(database, tmp_path / "a.jsonl", format="jsonl", progress=remove_more) == 2400


def test_a_failure_leaves_the_old_file(database: SqliteDatabase, tmp_path: Path) -> None:
    path = tmp_path / "a.geojson"
    path.write_text("old")

    def fail(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_memories(database, path, format="geojson", progress=fail)
    assert path.read_text() == "old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.geojson", "store"]


def test_formats(database: SqliteDatabase) -> None:
    assert export_format(Path("a.JSONL")) == "jsonl"
    assert export_format(Path("a.pq")) == "parquet"
    with pytest.raises(ValueError, match=r"a\.txt: unknown suffix"):
        export_format(Path("a.txt"))
    with pytest.raises(ValueError, match="Parquet is binary"):
        export_memories(database, io.StringIO(), format="parquet")
