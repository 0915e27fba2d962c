"""Whole tables in the order of the ids, for caches in RAM; every function works within the caller's read
transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.persistence import poses
from memory.persistence.rows import SLOTS, Slot
from memory.persistence.sqlite.tables import Vectors, as_vectors, chunks
from memory.types import MOST_COUNT

#: Rows that are read at a time.
STRETCH = 1024


class Columns(NamedTuple):
    """Columns of memories in the order of their ids, for caches in RAM.

    Attributes:
        ids: (n,) int64.
        time_ns: (n,) int64.
        positions: (n, 3) float64, metres.
        yaw: (n,) float64, radians.
        confidence, reward, importance: (n,) float64; NaN where there is no importance.
        marked: (n,) bool.
        counts, access_counts: (n,) int64.
        accessed_ns: (n,) int64; ``time_ns`` where it never was.
        map_ids, labels, kinds, states: n strings each.
    """

    ids: NDArray[np.int64]
    time_ns: NDArray[np.int64]
    positions: NDArray[np.float64]
    yaw: NDArray[np.float64]
    confidence: NDArray[np.float64]
    reward: NDArray[np.float64]
    importance: NDArray[np.float64]
    marked: NDArray[np.bool_]
    counts: NDArray[np.int64]
    access_counts: NDArray[np.int64]
    accessed_ns: NDArray[np.int64]
    map_ids: list[str]
    labels: list[str]
    kinds: list[str]
    states: list[str]


def scan_vectors(connection: sqlite3.Connection, slot: Slot, *, after_id: int, limit: int) -> Vectors:
    """Vectors of one slot in the order of their ids."""
    rows = connection.execute(
        f"SELECT key, half FROM vector WHERE key >= ? AND key % {SLOTS} = ? ORDER BY key LIMIT ?",
        (SLOTS * (after_id + 1), slot.number, limit),
    ).fetchall()
    return as_vectors([key // SLOTS for key, _ in rows], [half for _, half in rows], slot.dim)


def scan_columns(
    connection: sqlite3.Connection, *, after_id: int = 0, limit: int = -1, ids: Sequence[int] | None = None
) -> Columns:
    """Columns of memories in the order of their ids: a stretch, or those of ``ids`` that are there."""
    select = (
        "SELECT m.id, m.time_ns, m.confidence, m.reward, m.importance, m.marked, m.count,"
        " m.access_count, coalesce(m.accessed_ns, m.time_ns), m.map_id, m.label, m.kind, m.state FROM "
    )
    if ids is None:
        sql = select + "memory AS m WHERE m.id > ? ORDER BY m.id LIMIT ?"
        cursors = iter([connection.execute(sql, (after_id, limit))])
    else:
        sql = select + "json_each(?) AS j CROSS JOIN memory AS m ON m.id = j.value ORDER BY m.id"
        cursors = (connection.execute(sql, (json.dumps(chunk),)) for chunk in chunks(sorted(set(ids))))
    columns: list[list[Any]] = [[] for _ in range(13)]
    for cursor in cursors:
        while rows := cursor.fetchmany(STRETCH):
            for column, values in zip(columns, zip(*rows, strict=True), strict=True):
                column += values

    def integers(at: int) -> NDArray[np.int64]:
        return np.array(columns[at], dtype=np.int64)

    def floats(at: int) -> NDArray[np.float64]:
        return np.array(columns[at], dtype=np.float64)

    table = poses.read(connection, integers(0))
    return Columns(
        ids=integers(0),
        time_ns=integers(1),
        positions=table[:, :3],
        yaw=table[:, 3],
        confidence=floats(2),
        reward=floats(3),
        importance=np.clip(floats(4), 0.0, 1.0),  # As of a memory that is read.
        marked=np.array(columns[5], dtype=bool),
        counts=np.minimum(integers(6), MOST_COUNT),
        access_counts=integers(7),
        accessed_ns=integers(8),
        map_ids=columns[9],
        labels=columns[10],
        kinds=columns[11],
        states=columns[12],
    )
