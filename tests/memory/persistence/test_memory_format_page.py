"""docs/memory-format.md names what is in the file, and its numbers are those of the code."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from memory.config import FILE_NAME
from memory.index import files as index_files
from memory.merging.visits import VISIT_GAP_S
from memory.observe.reservoir import FORMAT
from memory.persistence import connection, operations, places, poses
from memory.persistence.migrations import APPLICATION_ID, MIGRATIONS
from memory.persistence.records import SLOTS
from memory.persistence.sqlite import Database
from memory.types import MOST_VISITS, Memory

PAGE = (Path(__file__).parents[3] / "docs" / "memory-format.md").read_text(encoding="utf-8")


def test_every_table_column_and_index_is_named(tmp_path: Path) -> None:
    Database.open(tmp_path, dim=4).close()
    database = sqlite3.connect(tmp_path / "memory.db")
    try:
        rows = database.execute("SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite%'")
        names = {(kind, name) for kind, name, _ in rows if not re.match("(words|place)_", name)}
        told = set(re.findall(r"[a-z][a-z0-9_]*", PAGE))
        generated = {"log_row_generation", "log_row_id", "log_pose_generation", "log_keeps", "log_stays"}
        assert {name for _, name in names} - generated <= told
        for kind, name in names:
            if kind == "table":
                described = {row[1] for row in database.execute(f"PRAGMA table_info({name})")}
                assert described <= told, name
    finally:
        database.close()


@pytest.mark.parametrize(
    "text",
    [
        f"{APPLICATION_ID:#010X}".replace("0X", "0x"),
        f"now **{len(MIGRATIONS)}**",
        f"every {connection.CHECKPOINT_PAGES} pages",
        f"{poses.CHUNK} ids a row",
        f"`id % {poses.CHUNK}`",
        f"**blocks** of up to {places.BLOCK} memories",
        f"more than {places.TAIL} wait",
        f"up to {places.RUN:,} memories",
        f"as much as {places.BROAD} rows",
        f"= {SLOTS} · memory id + slot",
        f"up to {operations.POSE_PART:,} memories",
        f"there are at most {MOST_VISITS}",
        f"more than {MOST_VISITS} remain",
        f"at most {VISIT_GAP_S:.0f} s apart",
        f"`{index_files.FORMAT}`",
        f"`{FORMAT}`",
        f"`{FILE_NAME}`",
    ],
)
def test_numbers_and_names(text: str) -> None:
    assert text in PAGE


def test_types_of_arrays() -> None:
    assert all(f"`{name}`" in PAGE for name in index_files._TYPES)


def test_the_place_of_a_pose(tmp_path: Path) -> None:
    """Read with nothing but the page."""
    with Database.open(tmp_path, dim=4) as database:
        rows = [
            Memory(time_ns=i, position=(i, -i, 0.5), yaw=0.25, covariance=np.eye(3) * i) for i in range(300)
        ]
        ids = database.add(rows)
        database.remove([7])
    raw = sqlite3.connect(tmp_path / "memory.db")
    try:
        for table, column, width in (("pose", "poses", 4), ("spread", "covariances", 6)):
            for id in (1, 7, 126, ids[-1]):
                sql = f"SELECT {column} FROM {table} WHERE chunk = ?"
                (blob,) = raw.execute(sql, (id // 126,)).fetchone()
                found = np.frombuffer(blob, "<f8").reshape(126, width)[id % 126]
                at = id - 1
                wanted = [at, -at, 0.5, 0.25] if width == 4 else [at, 0, 0, at, 0, at]
                np.testing.assert_array_equal(found, [np.nan] * width if id == 7 else wanted)
    finally:
        raw.close()
