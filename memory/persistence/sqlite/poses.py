"""Poses in rows of many ids, so that a million of them are read or changed at once.

A row of ``pose`` or ``spread`` holds ``CHUNK`` consecutive ids. Every function runs within the caller's
transaction.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memory.errors import CorruptStoreError
from memory.persistence import checksums
from memory.persistence.poses import POSE, POSE_COLUMNS, SPREAD, has_pose

#: Ids per row; their poses fit on a page of 4096 bytes.
CHUNK = 126
#: Read ids individually if fewer than this share a row.
SCATTERED = 6

WRONG_LENGTH = "poses have a wrong length. Restore a backup"
POSE_BYTES = 8 * POSE
NO_POSES = np.full(POSE * CHUNK, np.nan, "<f8").tobytes()
REPLACE = {
    "pose": "INSERT OR REPLACE INTO pose (chunk, spread, poses, crc) VALUES (?, ?, ?, ?)",
    "spread": "INSERT OR REPLACE INTO spread (chunk, covariances, crc) VALUES (?, ?, ?)",
}
COLUMN = {"pose": "poses", "spread": "covariances"}


def read(
    connection: sqlite3.Connection, ids: NDArray[np.int64], *, spread: bool = False
) -> NDArray[np.float64]:
    """Return (n, ``POSE``) float64, or (n, ``POSE_COLUMNS``) with ``spread``; NaN for unknown ids."""
    found = np.full((len(ids), POSE_COLUMNS if spread else POSE), np.nan)
    if not len(ids):
        return found
    changes = int(np.count_nonzero(np.diff(ids // CHUNK, prepend=-1)))
    rows = min(changes, (int(ids.max()) - int(ids.min())) // CHUNK + 2)
    if len(ids) < SCATTERED * rows:
        return read_single(connection, ids, spread=spread)
    chunks, inverse = np.unique(ids // CHUNK, return_inverse=True)
    rest = ids % CHUNK
    found[:, :POSE] = read_chunks(connection, "pose", chunks)[inverse, rest]
    if spread:
        found[:, POSE:] = read_chunks(connection, "spread", chunks)[inverse, rest]
    return found


def read_chunks(connection: sqlite3.Connection, table: str, chunks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return (chunks, ``CHUNK``, width) float64 of rising chunk numbers."""
    column, width = COLUMN[table], POSE if table == "pose" else SPREAD
    found = np.full((len(chunks), CHUNK, width), np.nan)
    if not len(chunks):
        return found
    low, high = int(chunks[0]), int(chunks[-1])
    if 4 * len(chunks) > high - low:
        rows = connection.execute(
            f"SELECT chunk, {column} FROM {table} WHERE chunk BETWEEN ? AND ?", (low, high)
        ).fetchall()
    else:
        rows = connection.execute(
            f"SELECT t.chunk, t.{column} FROM json_each(?) AS j CROSS JOIN {table} AS t ON t.chunk = j.value",
            (json.dumps(chunks.tolist()),),
        ).fetchall()
    if rows:
        numbers = np.array([row[0] for row in rows], dtype=np.int64)
        values = floats([row[1] for row in rows], CHUNK * width).reshape(-1, CHUNK, width)
        place = np.minimum(np.searchsorted(chunks, numbers), len(chunks) - 1)
        wanted = chunks[place] == numbers
        found[place[wanted]] = values[wanted]
    return found


def read_single(
    connection: sqlite3.Connection, ids: NDArray[np.int64], *, spread: bool = False
) -> NDArray[np.float64]:
    """Read scattered ids like :func:`read`, fetching only their own bytes of a row."""
    widths = {"pose": POSE} | ({"spread": SPREAD} if spread else {})
    columns = ", ".join(
        f"substr({table}.{COLUMN[table]}, 1 + {8 * width} * (j.value % {CHUNK}), {8 * width})"
        for table, width in widths.items()
    )
    joins = "".join(f" LEFT JOIN {table} ON {table}.chunk = j.value / {CHUNK}" for table in widths)
    sql = f"SELECT {columns} FROM json_each(?) AS j{joins} ORDER BY j.key"
    rows = connection.execute(sql, (json.dumps(ids.tolist()),)).fetchall()
    found = []
    for at, width in enumerate(widths.values()):
        nothing = np.full(width, np.nan, "<f8").tobytes()
        found.append(floats([row[at] or nothing for row in rows], width))
    return found[0] if len(found) == 1 else np.concatenate(found, axis=1)


def floats(blobs: Sequence[bytes], count: int) -> NDArray[np.float64]:
    """Return (blobs, count) float64, or raise ``CorruptStoreError``."""
    if any(len(blob) != 8 * count for blob in blobs):
        raise CorruptStoreError(WRONG_LENGTH)
    return np.frombuffer(b"".join(blobs), "<f8").reshape(len(blobs), count)


def scan(
    connection: sqlite3.Connection, first_id: int = 0, last_id: int = 2**62
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the rising ids from first to last that exist, and their (n, ``POSE``) poses."""
    rows = connection.execute(
        "SELECT chunk, poses FROM pose WHERE chunk BETWEEN ? AND ? ORDER BY chunk",
        (first_id // CHUNK, last_id // CHUNK),
    ).fetchall()
    numbers = np.array([row[0] for row in rows], dtype=np.int64)
    poses = floats([row[1] for row in rows], CHUNK * POSE).reshape(-1, POSE)
    ids = (CHUNK * numbers[:, None] + np.arange(CHUNK)).ravel()
    kept = has_pose(poses)
    if len(rows) and (ids[0] < first_id or ids[-1] > last_id):
        kept &= (ids >= first_id) & (ids <= last_id)
    return (ids, poses) if kept.all() else (ids[kept], poses[kept])


def spread_ids(connection: sqlite3.Connection) -> NDArray[np.int64]:
    """Return the ids with a covariance."""
    found = [np.zeros(0, np.int64)]
    for (chunk,) in connection.execute("SELECT chunk FROM spread").fetchall():
        spreads = read_chunks(connection, "spread", np.array([chunk]))[0]
        found.append(CHUNK * chunk + np.flatnonzero(~np.isnan(spreads).all(axis=1)))
    return np.concatenate(found)


def write(connection: sqlite3.Connection, ids: NDArray[np.int64], poses: NDArray[np.float64]) -> None:
    """Set the poses of unique ids.

    Args:
        ids: (n,) ids of memories that exist, come or go.
        poses: (n, ``POSE``) float64, which keeps covariances, or (n, ``POSE_COLUMNS``).
    """
    if not len(ids):
        return
    chunks, inverse = np.unique(ids // CHUNK, return_inverse=True)
    rest = ids % CHUNK
    # Covariances first, because each row of poses records whether it has some.
    for table, part in (("spread", poses[:, POSE:]), ("pose", poses[:, :POSE])):
        if not part.shape[1]:
            continue
        values = read_chunks(connection, table, chunks)
        values[inverse, rest] = part
        there = ~np.isnan(values).all(axis=(1, 2))
        kept = chunks[there].tolist()
        blobs = [values[at].astype("<f8", copy=False).tobytes() for at in np.flatnonzero(there)]
        if table == "pose":
            spread = with_spread(connection, chunks)
            flags = [int(chunk in spread) for chunk in kept]
            sums = checksums.POSE.sums(kept, (flags,), blobs)
            connection.executemany(REPLACE[table], zip(kept, flags, blobs, sums, strict=True))
        else:
            sums = checksums.SPREAD.sums(kept, (), blobs)
            connection.executemany(REPLACE[table], zip(kept, blobs, sums, strict=True))
        empty = [(int(number),) for number in chunks[~there]]
        connection.executemany(f"DELETE FROM {table} WHERE chunk = ?", empty)


def with_spread(connection: sqlite3.Connection, chunks: NDArray[np.int64]) -> set[int]:
    """Return the chunks with covariances in the range of these rising chunks."""
    sql = "SELECT chunk FROM spread WHERE chunk BETWEEN ? AND ?"
    return {chunk for (chunk,) in connection.execute(sql, (int(chunks[0]), int(chunks[-1])))}


def append(connection: sqlite3.Connection, first_id: int, data: bytes) -> None:
    """Set the poses of new memories with consecutive ids, in fewer steps than :func:`write`.

    Args:
        first_id: the first id.
        data: ``POSE`` float64 of each memory.
    """
    end = first_id + len(data) // POSE_BYTES
    first, last = first_id // CHUNK, (end - 1) // CHUNK
    sql = "SELECT chunk, poses, spread FROM pose WHERE chunk BETWEEN ? AND ?"
    before = {row[0]: row[1:] for row in connection.execute(sql, (first, last))}
    rows = []
    for chunk in range(first, last + 1):
        low, high = max(first_id, CHUNK * chunk), min(end, CHUNK * (chunk + 1))
        known, spread = before.get(chunk, (NO_POSES, 0))
        if len(known) != len(NO_POSES):
            raise CorruptStoreError(WRONG_LENGTH)
        start, stop = (POSE_BYTES * (id - CHUNK * chunk) for id in (low, high))
        part = data[POSE_BYTES * (low - first_id) : POSE_BYTES * (high - first_id)]
        blob = known[:start] + part + known[stop:]
        rows.append((chunk, spread, blob, checksums.POSE.sum((chunk, spread), blob)))
    connection.executemany(REPLACE["pose"], rows)


def clear(connection: sqlite3.Connection, ids: NDArray[np.int64]) -> None:
    """Delete the poses and covariances of memories."""
    write(connection, ids, np.full((len(ids), POSE_COLUMNS), np.nan))
