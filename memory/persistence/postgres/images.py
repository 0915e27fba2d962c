"""Rows in and out of the tables of a server; every function runs within the caller's transaction."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.persistence import checksums, poses, visits
from memory.persistence.postgres import words
from memory.persistence.rows import (
    ACCESS,
    SCALARS,
    TEXTS,
    Image,
    PreparedRows,
    Slot,
    Vectors,
    in_order,
)
from memory.persistence.slots import add_slot

LABEL, CAPTION = SCALARS.index("label"), TEXTS.index("caption")
PLACE = ("x", "y", "z", "yaw", "covariance")
COLUMNS = ("id", *SCALARS, *ACCESS, "visits", *PLACE, *TEXTS, "words")
SELECT = (
    f"SELECT m.id, {', '.join('m.' + name for name in (*SCALARS, *ACCESS, *PLACE, *TEXTS))}, v.visits"
    " FROM memory AS m LEFT JOIN visited AS v ON v.id = m.id WHERE m.id = ANY(?::bigint[])"
)
#: Header and trailer of binary COPY data, see PostgreSQL's documentation of COPY.
COPY_HEAD, COPY_END = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0), struct.pack(">h", -1)


def array(numbers: Iterable[Any]) -> str:
    """Return numbers in the server's array syntax."""
    return "{" + ",".join(map(repr, numbers)) + "}"


def copy_vectors(connection: Any, ids: Sequence[int], slot: int, blobs: Sequence[bytes], dim: int) -> None:
    """Insert vectors of one slot, bit for bit."""
    row = np.dtype([
        ("fields", ">i2"), ("id_size", ">i4"), ("id", ">i8"), ("slot_size", ">i4"), ("slot", ">i2"),
        ("half_size", ">i4"), ("dim", ">i2"), ("unused", ">i2"), ("half", ">f2", (dim,)),
    ])  # fmt: skip
    rows = np.zeros(len(ids), row)
    rows["fields"], rows["id_size"], rows["slot_size"], rows["half_size"] = 3, 8, 2, 4 + 2 * dim
    rows["id"], rows["slot"], rows["dim"] = ids, slot, dim
    rows["half"] = np.frombuffer(b"".join(blobs), "<f2").reshape(len(ids), dim)
    with _copy_into(connection, "embedding", ("id", "slot", "half"), " (FORMAT BINARY)") as copy:
        copy.write(COPY_HEAD + rows.tobytes() + COPY_END)


def copy_rows(connection: Any, rows: Iterable[Sequence[Any]]) -> None:
    """Insert rows of ``memory``."""
    with _copy_into(connection, "memory", COLUMNS) as copy:
        for row in rows:
            copy.write_row(row)


@contextmanager
def _copy_into(connection: Any, table: str, columns: Sequence[str], form: str = "") -> Iterator[Any]:
    """Copy rows into a table; under row-level security, by way of a temporary table."""
    into, names = table, ", ".join(columns)
    if connection.guarded:
        into = f"pg_temp.new_{table}"
        connection.execute(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS new_{table} ON COMMIT DELETE ROWS AS"
            f" SELECT {names} FROM {table} WITH NO DATA"
        )
    with connection.raw.cursor() as cursor, cursor.copy(f"COPY {into} ({names}) FROM STDIN{form}") as copy:
        yield copy
    if connection.guarded:
        connection.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM {into}")
        connection.execute(f"DELETE FROM {into}")


def insert_prepared(connection: Any, slots: dict[str, Slot], prepared: PreparedRows, first_id: int) -> None:
    """Insert new memories with rising ids."""
    copy_prepared(connection, slots, prepared, first_id)
    texts = zip(prepared.scalars["label"], prepared.texts["caption"], strict=True)
    words.count(connection, words.counts_of(texts), 1)
    visits.write(connection, {first_id + position: kept for position, kept in prepared.visits.items()})


def copy_prepared(connection: Any, slots: dict[str, Slot], prepared: PreparedRows, first_id: int) -> None:
    """Insert rows and vectors of new memories, without word counts and visits."""
    table = prepared.poses.tolist()
    scalars = zip(*(prepared.scalars[name] for name in SCALARS), strict=True)
    texts = zip(*(prepared.texts[name] for name in TEXTS), strict=True)
    copy_rows(
        connection,
        (
            (first_id + at, *_values(scalar, (0, None), at in prepared.visits, table[at], text))
            for at, (scalar, text) in enumerate(zip(scalars, texts, strict=True))
        ),
    )
    for name, (positions, blobs, dim) in prepared.vectors.items():
        slot = add_slot(connection, slots, name, dim).number
        copy_vectors(connection, [first_id + position for position in positions], slot, blobs, dim)


def _values(
    scalars: Sequence[Any],
    access: Sequence[Any],
    visited: bool,
    pose: Sequence[float],
    texts: Sequence[Any],
) -> tuple[Any, ...]:
    """Return the values of ``COLUMNS`` after the id; the pose is x, y, z, yaw and any covariance."""
    place = (*pose[: poses.POSE], spread_of(pose[poses.POSE :]))
    return (*scalars, *access, int(visited), *place, *texts, words.vector_of(scalars[LABEL], texts[CAPTION]))


def spread_of(numbers: Sequence[float]) -> str | None:
    """Return a covariance in the server's syntax, or ``None``."""
    return None if not numbers or np.isnan(numbers[0]) else array(numbers)


def read_images(connection: Any, ids: Sequence[int], *, vectors: bool = True) -> list[Image]:
    """Return the memories in order of the ids, or raise ``UnknownMemoryError``."""
    if not ids:
        return []
    blobs = read_halves(connection, ids) if vectors else {}
    found: dict[int, Image] = {}
    scalars_to = 1 + len(SCALARS)
    access_to = scalars_to + len(ACCESS)
    for row in connection.execute(SELECT, (array(ids),)):
        pose, covariance, blob = row[access_to : access_to + poses.POSE], row[access_to + poses.POSE], row[-1]
        found[row[0]] = Image(
            row[0],
            row[1:scalars_to],
            row[scalars_to:access_to],
            tuple(pose),
            None if covariance is None else tuple(covariance),
            row[access_to + len(PLACE) : -1],
            blobs.get(row[0], {}),
            visits.unpack(row[0], blob),
        )
    return in_order(found, ids)


def read_halves(connection: Any, ids: Sequence[int]) -> dict[int, dict[str, bytes]]:
    """Return vectors by memory and slot name, as in :class:`Image`."""
    found: dict[int, dict[str, bytes]] = {}
    with connection.raw.cursor(binary=True) as cursor:
        sql = (
            "SELECT e.id, s.name, e.half FROM embedding AS e JOIN slot AS s USING (slot)"
            " WHERE e.id = ANY(%s::bigint[]) ORDER BY e.id, e.slot"
        )
        for id, name, half in cursor.execute(sql, (array(ids),)):
            found.setdefault(id, {})[name] = half_of(half)
    return found


def half_of(sent: bytes) -> bytes:
    """Convert a ``halfvec`` as sent, four bytes and big-endian numbers, to little-endian numbers."""
    return np.frombuffer(sent, ">f2", offset=4).astype("<f2").tobytes()


def read_vectors(connection: Any, ids: Sequence[int], slot: Slot) -> Vectors:
    """Return the existing vectors of the ids, in their order."""
    sql = (
        "SELECT e.id, e.half FROM unnest(%s::bigint[]) WITH ORDINALITY AS n (id, at)"
        " JOIN embedding AS e ON e.id = n.id AND e.slot = %s ORDER BY n.at"
    )
    return _fetch(connection, sql, (array(ids), slot.number), slot.dim)


def scan_vectors(connection: Any, slot: Slot, *, after_id: int, limit: int) -> Vectors:
    """Return vectors of one slot in order of their ids."""
    sql = "SELECT id, half FROM embedding WHERE slot = %s AND id > %s ORDER BY id LIMIT %s"
    return _fetch(connection, sql, (slot.number, after_id, limit), slot.dim)


def _fetch(connection: Any, sql: str, parameters: Sequence[Any], dim: int) -> Vectors:
    with connection.raw.cursor(binary=True) as cursor:
        rows = cursor.execute(sql, parameters).fetchall()
    return Vectors.of([row[0] for row in rows], [half_of(row[1]) for row in rows], dim)


def delete_images(connection: Any, images: Sequence[Image]) -> None:
    """Remove the memories and all their rows."""
    if not images:
        return
    words.count(connection, words.counts_of((i.scalars[LABEL], i.texts[CAPTION]) for i in images), -1)
    ids = array(image.id for image in images)
    for table in ("embedding", "visited", "memory"):
        connection.execute(f"DELETE FROM {table} WHERE id = ANY(?::bigint[])", (ids,))


def insert_images(connection: Any, slots: dict[str, Slot], images: Sequence[Image]) -> None:
    """Restore removed memories, bit for bit."""
    if not images:
        return
    copy_rows(
        connection,
        (
            (i.id, *_values(i.scalars, i.access, bool(i.visits), (*i.pose, *(i.covariance or ())), i.texts))
            for i in images
        ),
    )
    if not connection.guarded:
        # Their writer is again the role that added them, not the one that restores them.
        connection.execute(
            "UPDATE memory AS m SET writer = r.memory_of FROM (SELECT DISTINCT ON (id) id, memory_of FROM"
            " log_row WHERE id = ANY(?::bigint[]) AND memory_of IS NOT NULL ORDER BY id, row DESC) AS r"
            " WHERE m.id = r.id AND m.writer <> r.memory_of",
            (array(image.id for image in images),),
        )
    write_vectors(connection, slots, images)
    words.count(connection, words.counts_of((i.scalars[LABEL], i.texts[CAPTION]) for i in images), 1)
    visits.write(connection, {image.id: image.visits for image in images})


def write_vectors(connection: Any, slots: dict[str, Slot], images: Sequence[Image]) -> None:
    """Insert vectors of memories that have none."""
    by_name: dict[str, tuple[list[int], list[bytes]]] = {}
    for image in images:
        for name, blob in image.vectors.items():
            add_slot(connection, slots, name, len(blob) // 2)
            ids, blobs = by_name.setdefault(name, ([], []))
            ids.append(image.id)
            blobs.append(blob)
    for name, (ids, blobs) in by_name.items():
        copy_vectors(connection, ids, slots[name].number, blobs, slots[name].dim)


def replace_images(
    connection: Any, slots: dict[str, Slot], before: Sequence[Image], after: Sequence[Image]
) -> None:
    """Replace images of memories; access counts stay."""
    names = (*SCALARS, "visits", *PLACE, *TEXTS, "words")
    assign = f"UPDATE memory SET {', '.join(name + ' = ?' for name in names)} WHERE id = ?"
    old_words = [(i.scalars[LABEL], i.texts[CAPTION]) for i in before]
    new_words = [(i.scalars[LABEL], i.texts[CAPTION]) for i in after]
    # All at once, to avoid a round trip per row.
    connection.executemany(
        assign,
        [
            (*_values(i.scalars, (), bool(i.visits), (*i.pose, *(i.covariance or ())), i.texts), i.id)
            for i in after
        ],
    )
    changed = [pair for pair in zip(old_words, new_words, strict=True) if pair[0] != pair[1]]
    words.count(connection, words.counts_of(pair[1] for pair in changed), 1)
    words.count(connection, words.counts_of(pair[0] for pair in changed), -1)
    others = [new for old, new in zip(before, after, strict=True) if old.vectors != new.vectors]
    if others:
        ids = array(image.id for image in others)
        connection.execute("DELETE FROM embedding WHERE id = ANY(?::bigint[])", (ids,))
        write_vectors(connection, slots, others)
    for old, new in zip(before, after, strict=True):
        if old.visits != new.visits:
            visits.delete(connection, [old.id])
            visits.write(connection, {new.id: new.visits})


def read_poses(connection: Any, ids: NDArray[np.int64], *, spread: bool = False) -> NDArray[np.float64]:
    """Return (n, ``POSE``) float64, or (n, ``POSE_COLUMNS``) with ``spread``; NaN for unknown ids."""
    width = poses.POSE_COLUMNS if spread else poses.POSE
    found = np.full((len(ids), width), np.nan)
    if not len(ids):
        return found
    columns = "x, y, z, yaw, covariance" if spread else "x, y, z, yaw"
    sql = f"SELECT id, {columns} FROM memory WHERE id = ANY(?::bigint[])"
    by_id: Mapping[int, Sequence[Any]] = {
        row[0]: row[1:] for row in connection.execute(sql, (array(ids.tolist()),))
    }
    for at, id in enumerate(ids.tolist()):
        row = by_id.get(id)
        if row is not None:
            found[at, : poses.POSE] = row[: poses.POSE]
            if spread and row[-1] is not None:
                found[at, poses.POSE :] = row[-1]
    return found


def move(connection: Any, ids: NDArray[np.int64], table: NDArray[np.float64], last_id: int) -> bool:
    """Set the poses of memories, and their covariances if the table has them."""
    columns = [array(column.tolist()) for column in table.T]
    numbers = [f"n{at}" for at in range(table.shape[1])]
    sets = [f"{name} = {number}" for name, number in zip(PLACE, numbers, strict=False)]
    if table.shape[1] > poses.POSE:
        spread = ", ".join(numbers[poses.POSE :])
        sets[-1:] = [
            f"covariance = CASE WHEN {numbers[poses.POSE]} = 'NaN' THEN NULL ELSE ARRAY[{spread}] END"
        ]
    else:
        sets = sets[: poses.POSE]
    arrays = ", ".join(["?::bigint[]", *["?::double precision[]"] * len(columns)])
    connection.execute(
        f"UPDATE memory SET {', '.join(sets)} FROM unnest({arrays}) AS n (id, {', '.join(numbers)})"
        " WHERE memory.id = n.id",
        (array(ids.tolist()), *columns),
    )
    return False


def renew(connection: Any, layout: checksums.Layout, keys: Sequence[int]) -> None:
    """Drop the checksums of changed log rows, because the server's pages have their own."""
    if layout in (checksums.LOG_ROW, checksums.LOG_POSE) and keys:
        sql = f"UPDATE {layout.table} SET crc = NULL WHERE {layout.key} = ANY(?::bigint[])"
        connection.execute(sql, (array(keys),))
