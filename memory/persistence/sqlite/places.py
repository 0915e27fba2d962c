"""What is where: an R*Tree over blocks of memories that are near each other.

An entry of the tree costs more than all the rest of a memory, so an entry is a block of up to ``BLOCK``
memories, and blocks are made for thousands of memories at once (Sort-Tile-Recursive packing, Leutenegger,
Lopez and Edgington 1997). What came since is looked through by its poses: the ids after ``meta.placed`` and
those in ``loose``. Nothing is ever taken out of a block alone: what is found in one is compared with the
poses, which are the truth. Every function works within the caller's transaction.
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

#: Memories in a block.
BLOCK = 256
#: Memories that wait for their blocks at most, between transactions.
TAIL = 8192
#: Runs of new blocks that are made into one ...
SMALL_RUNS = 4
#: ... of this many memories at most, which bounds how long a transaction is held up by it.
RUN = 32768
#: Where more than one in so many memories moves at once, or the blocks hold so many times more than there
#: ever were, all blocks are made anew.
REBUILD, STALE = 4, 4
#: A block costs as much as so many rows of ``pose``: where it is less to look through all of these, that is
#: done.
BROAD = 16
#: The R*Tree holds single precision: places beyond this are entered, and looked for, at it ...
PLACE_LIMIT = 3.4e38
#: ... and those nearer to 0 than this at 0, because SQLite rounds subnormal numbers to the wrong side.
PLACE_TINY = 1e-30

CREATE_PLACE = "CREATE VIRTUAL TABLE place USING rtree(block, x0, x1, y0, y1)"
OVERLAP = "p.x1 >= ? AND p.x0 <= ? AND p.y1 >= ? AND p.y0 <= ?"

Bounds = tuple[float, float, float, float]


class PlacedPoints(NamedTuple):
    """Memories and where they are.

    Attributes:
        ids: (n,) int64, rising.
        points: (n, 2) float64, metres.
    """

    ids: NDArray[np.int64]
    points: NDArray[np.float64]


def within(connection: sqlite3.Connection, bounds: Bounds) -> PlacedPoints:
    """The memories from x0, y0 to x1, y1 (edges included), exactly."""
    x0, y0, x1, y1 = (clamp(value) for value in bounds)
    overlap = (x0, x1, y0, y1)
    blocks = connection.execute(f"SELECT count(*) FROM place AS p WHERE {OVERLAP}", overlap).fetchone()[0]
    rows = connection.execute("SELECT coalesce(max(chunk), 0) FROM pose").fetchone()[0]
    if blocks and BROAD * blocks >= rows:
        return bounded(*poses.scan(connection), bounds)
    found = [tail(connection)]
    sql = f"SELECT b.ids, b.points FROM place AS p CROSS JOIN block AS b ON b.block = p.block WHERE {OVERLAP}"
    hits = connection.execute(sql, overlap).fetchall()
    if hits:
        found.append(bounded(*unpack(hits), bounds).ids)
    ids = distinct(np.concatenate(found))
    return bounded(ids, poses.read(connection, ids), bounds)


def bounded(ids: NDArray[np.int64], points: NDArray[np.float64], bounds: Bounds) -> PlacedPoints:
    """Those of (n, 2 or more) points that are within the bounds; none that is not a number."""
    x0, y0, x1, y1 = bounds
    x, y = points[:, 0], points[:, 1]
    kept = np.flatnonzero((x >= x0) & (x <= x1) & (y >= y0) & (y <= y1))
    return PlacedPoints(ids[kept], points[kept, :2])


def tail(connection: sqlite3.Connection) -> NDArray[np.int64]:
    """Ids that may not be in the blocks as they are now."""
    rows = connection.execute("SELECT id FROM loose").fetchall()
    loose = np.array([id for (id,) in rows], dtype=np.int64)
    return np.concatenate([poses.scan(connection, meta.read_number(connection, meta.PLACED) + 1)[0], loose])


def unpack(rows: list[tuple[bytes, bytes]]) -> PlacedPoints:
    """Blocks as arrays; the ids do not rise.

    Raises:
        CorruptStoreError: their lengths do not fit.
    """
    if any(len(ids) % 8 or len(points) != 2 * len(ids) for ids, points in rows):
        raise CorruptStoreError("a block of the index over places is damaged: run check(repair=True)")
    ids = np.frombuffer(b"".join([row[0] for row in rows]), "<i8")
    return PlacedPoints(ids, np.frombuffer(b"".join([row[1] for row in rows]), "<f8").reshape(-1, 2))


def loosen(connection: sqlite3.Connection, ids: NDArray[np.int64]) -> None:
    """Memories that moved or came back: they are looked at one by one until :func:`update_blocks`."""
    rows = [(id,) for id in ids.tolist()]
    connection.executemany("INSERT OR IGNORE INTO loose (id) VALUES (?)", rows)


def follow(
    connection: sqlite3.Connection, ids: NDArray[np.int64], points: NDArray[np.float64], last_id: int
) -> bool:
    """Take in that (n,) memories moved to (n, 2 or more) points; whether all blocks were made anew."""
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
    """Make blocks when many memories wait for them; the last id that is in a block now, which was ``placed``.

    With ``moved``, memories that became loose are counted too.
    """
    waiting = last_id - placed
    if waiting <= TAIL and moved:
        waiting += int(connection.execute("SELECT count(*) FROM loose").fetchone()[0])
    if waiting <= TAIL:
        return placed
    update_blocks(connection, last_id)
    return last_id


def update_blocks(connection: sqlite3.Connection, last_id: int) -> None:
    """Make a run of blocks for everything that waits, and one of many runs where there are many."""
    ids = distinct(tail(connection))
    write_runs(connection, ids, poses.read(connection, ids), large=False)
    connection.execute("DELETE FROM loose")
    meta.write(connection, meta.PLACED, last_id)
    small = connection.execute("SELECT run FROM run WHERE NOT large").fetchall()
    if len(small) >= SMALL_RUNS:
        # With the oldest one, so that what was removed or moved disappears from all of them in turn.
        oldest = connection.execute("SELECT run FROM run WHERE large ORDER BY run LIMIT 1").fetchall()
        compact(connection, [run for (run,) in small + oldest])


def write_runs(
    connection: sqlite3.Connection, ids: NDArray[np.int64], points: NDArray[np.float64], *, large: bool
) -> None:
    """New blocks for (n,) ids and their (n, 2 or more) points; those that are not numbers are left out."""
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
    """Blocks of a run, numbered from ``block``; the number after the last."""
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
    """An order of (n, 2) points in which every ``BLOCK`` of them lie in a small rectangle."""
    count = len(points)
    slices = max(1, math.ceil(math.sqrt(count / BLOCK)))
    column = np.empty(count, np.uint16)
    column[np.argsort(points[:, 0], kind="stable")] = np.arange(count) // (slices * BLOCK)
    by_y = np.argsort(points[:, 1], kind="stable")
    return by_y[np.argsort(column[by_y], kind="stable")]


def compact(connection: sqlite3.Connection, runs: list[int]) -> None:
    """Make one run of many, without what is no longer where it was."""
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
    """Make all blocks anew from the poses."""
    connection.execute("DROP TABLE place")
    connection.execute(CREATE_PLACE)
    for table in ("block", "run", "loose"):
        connection.execute(f"DELETE FROM {table}")
    write_runs(connection, *poses.scan(connection), large=True)
    meta.write(connection, meta.PLACED, last_id)


def clamp(value: float) -> float:
    """A coordinate as the R*Tree takes it; order is kept."""
    return 0.0 if abs(value) < PLACE_TINY else min(max(value, -PLACE_LIMIT), PLACE_LIMIT)
