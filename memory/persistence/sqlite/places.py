"""Place index: an R*Tree over blocks of nearby memories.

An entry of the tree costs more than the rest of a memory, so an entry is a block of up to ``BLOCK`` memories.
Blocks are built for thousands of memories at once (Sort-Tile-Recursive packing, Leutenegger, Lopez and
Edgington 1997). Newer memories are searched by their poses: the ids after ``meta.placed`` and those in
``loose``. Memories are never removed from a block; hits are compared with the poses, the source of truth.
Every function runs within the caller's transaction.
"""

from __future__ import annotations

import math
import sqlite3
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.errors import CorruptStoreError
from memory.persistence import meta
from memory.persistence.ids import distinct
from memory.persistence.sqlite import poses

#: Memories per block.
BLOCK = 256
#: Most memories without a block between transactions.
TAIL = 8192
#: Number of runs of new blocks that are merged into one,
SMALL_RUNS = 4
#: with at most this many memories, which limits the length of a transaction.
RUN = 32768
#: Rebuild all blocks if more than one in ``REBUILD`` memories moves at once, or if blocks hold ``STALE``
#: times more memories than ever existed.
REBUILD, STALE = 4, 4
#: Cost of a block in rows of ``pose``; scan all rows if that is cheaper.
BROAD = 16
#: The R*Tree uses single precision: clamp larger coordinates,
PLACE_LIMIT = 3.4e38
#: and treat smaller ones as 0, because SQLite rounds subnormal numbers in the wrong direction.
PLACE_TINY = 1e-30

CREATE_PLACE = "CREATE VIRTUAL TABLE place USING rtree(block, x0, x1, y0, y1)"
OVERLAP = "p.x1 >= ? AND p.x0 <= ? AND p.y1 >= ? AND p.y0 <= ?"

Bounds = tuple[float, float, float, float]


class PlacedPoints(NamedTuple):
    """Memories and their places.

    Attributes:
        ids: (n,) int64, rising.
        points: (n, 2) float64, metres.
    """

    ids: NDArray[np.int64]
    points: NDArray[np.float64]


def within(connection: sqlite3.Connection, bounds: Bounds) -> PlacedPoints:
    """Return the memories from x0, y0 to x1, y1 exactly, edges included."""
    x0, y0, x1, y1 = (clamp(value) for value in bounds)
    overlap = (x0, x1, y0, y1)
    blocks = connection.execute(f"SELECT count(*) FROM place AS p WHERE {OVERLAP}", overlap).fetchone()[0]
    rows = connection.execute("SELECT coalesce(max(chunk), 0) FROM pose").fetchone()[0]
    if blocks and BROAD * blocks >= rows:
        return within_bounds(*poses.scan(connection), bounds)
    found = [tail(connection)]
    sql = f"SELECT b.ids, b.points FROM place AS p CROSS JOIN block AS b ON b.block = p.block WHERE {OVERLAP}"
    hits = connection.execute(sql, overlap).fetchall()
    if hits:
        found.append(within_bounds(*unpack(hits), bounds).ids)
    ids = distinct(np.concatenate(found))
    return within_bounds(ids, poses.read(connection, ids), bounds)


def within_bounds(ids: NDArray[np.int64], points: NDArray[np.float64], bounds: Bounds) -> PlacedPoints:
    """Return those of (n, 2 or more) points within the bounds; NaN is not."""
    x0, y0, x1, y1 = bounds
    x, y = points[:, 0], points[:, 1]
    kept = np.flatnonzero((x >= x0) & (x <= x1) & (y >= y0) & (y <= y1))
    return PlacedPoints(ids[kept], points[kept, :2])


def tail(connection: sqlite3.Connection) -> NDArray[np.int64]:
    """Return the ids that the blocks may not reflect."""
    rows = connection.execute("SELECT id FROM loose").fetchall()
    loose = np.array([id for (id,) in rows], dtype=np.int64)
    return np.concatenate([poses.scan(connection, meta.read_number(connection, meta.PLACED) + 1)[0], loose])


def unpack(rows: list[tuple[bytes, bytes]]) -> PlacedPoints:
    """Return blocks as arrays; the ids are not sorted.

    Raises:
        CorruptStoreError: their lengths do not match.
    """
    if any(len(ids) % 8 or len(points) != 2 * len(ids) for ids, points in rows):
        raise CorruptStoreError("a block of the place index is damaged. Run recall check --repair")
    ids = np.frombuffer(b"".join([row[0] for row in rows]), "<i8")
    return PlacedPoints(ids, np.frombuffer(b"".join([row[1] for row in rows]), "<f8").reshape(-1, 2))


def loosen(connection: sqlite3.Connection, ids: NDArray[np.int64]) -> None:
    """Search memories that moved or came back one by one until :func:`update_blocks`."""
    rows = [(id,) for id in ids.tolist()]
    connection.executemany("INSERT OR IGNORE INTO loose (id) VALUES (?)", rows)


def follow(
    connection: sqlite3.Connection, ids: NDArray[np.int64], points: NDArray[np.float64], last_id: int
) -> bool:
    """Note that memories moved to (n, 2 or more) points; return True if all blocks were rebuilt."""
    blocks = connection.execute("SELECT count(*) FROM block").fetchone()[0]
    if REBUILD * len(ids) > last_id or BLOCK * blocks > STALE * last_id + TAIL:
        rebuild(connection, last_id)
        return True
    if len(ids) > TAIL:
        write_runs(connection, ids, points, large=True)
    else:
        loosen(connection, ids)
    return False


def update_blocks_if_many(connection: sqlite3.Connection, last_id: int, placed: int, *, moved: bool) -> int:
    """Build blocks if many memories wait, and return the last id in a block, which was ``placed``.

    With ``moved``, memories in ``loose`` count too.
    """
    waiting = last_id - placed
    if waiting <= TAIL and moved:
        waiting += int(connection.execute("SELECT count(*) FROM loose").fetchone()[0])
    if waiting <= TAIL:
        return placed
    update_blocks(connection, last_id)
    return last_id


def update_blocks(connection: sqlite3.Connection, last_id: int) -> None:
    """Build a run of blocks for all waiting memories, and merge runs if there are many."""
    ids = distinct(tail(connection))
    write_runs(connection, ids, poses.read(connection, ids), large=False)
    connection.execute("DELETE FROM loose")
    meta.write(connection, meta.PLACED, last_id)
    small = connection.execute("SELECT run FROM run WHERE NOT large").fetchall()
    if len(small) >= SMALL_RUNS:
        # Include the oldest run, so that removed and moved memories disappear from all of them in time.
        oldest = connection.execute("SELECT run FROM run WHERE large ORDER BY run LIMIT 1").fetchall()
        compact(connection, [run for (run,) in small + oldest])


def write_runs(
    connection: sqlite3.Connection, ids: NDArray[np.int64], points: NDArray[np.float64], *, large: bool
) -> None:
    """Write blocks for (n,) ids and their (n, 2 or more) points, skipping NaN."""
    there = ~np.isnan(points[:, 0])
    order = tiles(points[there, :2])
    ids, points = ids[there][order], points[there, :2][order]
    block = 1 + connection.execute("SELECT coalesce(max(block), 0) FROM block").fetchone()[0]
    for start in range(0, len(ids), RUN):
        run = slice(start, start + RUN)
        block = write_run(connection, ids[run], points[run], block, large=large)


def write_run(
    connection: sqlite3.Connection,
    ids: NDArray[np.int64],
    points: NDArray[np.float64],
    block: int,
    *,
    large: bool,
) -> int:
    """Write the blocks of a run, numbered from ``block``; return the next number."""
    starts = np.arange(0, len(ids), BLOCK)
    last = block + len(starts)
    sql = "INSERT INTO run (large, first_block, next_block) VALUES (?, ?, ?)"
    connection.execute(sql, (large, block, last))
    parts = [slice(start, start + BLOCK) for start in starts.tolist()]
    blobs = [(ids[part].astype("<i8").tobytes(), points[part].astype("<f8").tobytes()) for part in parts]
    sql = "INSERT INTO block (block, ids, points) VALUES (?, ?, ?)"
    connection.executemany(sql, [(at, *pair) for at, pair in enumerate(blobs, block)])
    low, high = np.minimum.reduceat(points, starts), np.maximum.reduceat(points, starts)
    sides = np.stack([low[:, 0], high[:, 0], low[:, 1], high[:, 1]], axis=1).tolist()
    boxes = [(at, *map(clamp, side)) for at, side in enumerate(sides, block)]
    connection.executemany("INSERT INTO place (block, x0, x1, y0, y1) VALUES (?, ?, ?, ?, ?)", boxes)
    return last


def tiles(points: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return an order of (n, 2) points in which every ``BLOCK`` of them lie in a small rectangle."""
    count = len(points)
    slices = max(1, math.ceil(math.sqrt(count / BLOCK)))
    column = np.empty(count, np.uint16)
    column[np.argsort(points[:, 0], kind="stable")] = np.arange(count) // (slices * BLOCK)
    by_y = np.argsort(points[:, 1], kind="stable")
    return by_y[np.argsort(column[by_y], kind="stable")]


def compact(connection: sqlite3.Connection, runs: list[int]) -> None:
    """Merge runs into one, without memories that moved or are gone."""
    found: list[tuple[bytes, bytes]] = []
    for run in runs:
        sql = "SELECT first_block, next_block FROM run WHERE run = ?"
        first, following = connection.execute(sql, (run,)).fetchone()
        span = (first, following - 1)
        found += connection.execute("SELECT ids, points FROM block WHERE block BETWEEN ? AND ?", span)
        connection.execute("DELETE FROM block WHERE block BETWEEN ? AND ?", span)
        blocks = [(block,) for block in range(first, following)]
        connection.executemany("DELETE FROM place WHERE block = ?", blocks)
        connection.execute("DELETE FROM run WHERE run = ?", (run,))
    ids, points = unpack(found)
    there = (poses.read(connection, ids)[:, :2] == points).all(axis=1)
    ids, first_of = np.unique(ids[there], return_index=True)
    write_runs(connection, ids, points[there][first_of], large=True)


def rebuild(connection: sqlite3.Connection, last_id: int) -> None:
    """Rebuild all blocks from the poses."""
    connection.execute("DROP TABLE place")
    connection.execute(CREATE_PLACE)
    for table in ("block", "run", "loose"):
        connection.execute(f"DELETE FROM {table}")
    write_runs(connection, *poses.scan(connection), large=True)
    meta.write(connection, meta.PLACED, last_id)


def clamp(value: float) -> float:
    """Return a coordinate as the R*Tree stores it; the order is kept."""
    return 0.0 if abs(value) < PLACE_TINY else min(max(value, -PLACE_LIMIT), PLACE_LIMIT)
