"""Rows in and out of the tables; every function runs within the caller's transaction."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from memory.errors import CorruptStoreError
from memory.persistence import checksums, visits
from memory.persistence.checksums import Layout
from memory.persistence.ids import chunks
from memory.persistence.poses import POSE, POSE_COLUMNS, SPREAD
from memory.persistence.rows import (
    ACCESS,
    DEFAULTS,
    SCALARS,
    SLOTS,
    TEXTS,
    Columns,
    Image,
    PreparedRows,
    Slot,
    Vectors,
    in_order,
)
from memory.persistence.slots import add_slot, read_slots
from memory.persistence.sqlite import places, poses, text_index

#: Rows fetched at a time.
STRETCH = 1024
INSERT_VECTOR = "INSERT OR REPLACE INTO vector (key, half, crc) VALUES (?, ?, ?)"
SELECT_IMAGES = (
    f"SELECT m.id, {', '.join('m.' + name for name in SCALARS + ACCESS)},"
    f" {', '.join('b.' + name for name in TEXTS)}, v.visits, m.vectors, m.visits, m.crc, b.crc"
    " FROM json_each(?) AS j CROSS JOIN memory AS m ON m.id = j.value JOIN body AS b ON b.id = m.id"
    " LEFT JOIN visited AS v ON v.id = m.id"
)
SELECT_VECTORS = (
    "SELECT v.key, v.half, v.crc FROM json_each(?) AS j CROSS JOIN vector AS v"
    f" ON v.key BETWEEN j.value * {SLOTS} AND j.value * {SLOTS} + {SLOTS - 1}"
)

#: Columns bound for a single new row, and its access counts.
NEW_COLUMNS, NEW_TEXTS = (*SCALARS, "vectors", "visits", "crc"), (*TEXTS, "crc")
NEW_ACCESS = tuple(DEFAULTS[name] for name in ACCESS)
LABEL, CAPTION = SCALARS.index("label"), TEXTS.index("caption")


def insert_prepared(
    connection: sqlite3.Connection, slots: dict[str, Slot], prepared: PreparedRows, first_id: int
) -> None:
    """Insert new memories with rising ids."""
    if prepared.size == 1:
        insert_one(connection, slots, prepared, first_id)
        return
    ids = range(first_id, first_id + prepared.size)
    bits = [0] * prepared.size
    for name, (positions, blobs, dim) in prepared.vectors.items():
        slot = add_slot(connection, slots, name, dim).number
        keys = [SLOTS * (first_id + position) + slot for position in positions]
        sums = checksums.VECTOR.sums(keys, (), blobs)
        connection.executemany(INSERT_VECTOR, zip(keys, blobs, sums, strict=True))
        for position in positions:
            bits[position] |= 1 << slot
    scalars = {
        **prepared.scalars,
        "vectors": [to_signed(some) for some in bits],
        "visits": [int(position in prepared.visits) for position in range(prepared.size)],
    }
    insert_columns(connection, "memory", ids, {**scalars, "crc": checksums.memory_sums(ids, scalars)})
    sums = checksums.body_sums(ids, prepared.texts)
    insert_columns(connection, "body", ids, {**prepared.texts, "crc": sums})
    words = prepared.scalars["label"], prepared.texts["caption"]
    text_index.add(connection, zip(ids, *words, strict=True))
    if prepared.visits:
        visits.write(connection, {first_id + position: kept for position, kept in prepared.visits.items()})
    write_new_poses(connection, first_id, prepared)


def insert_one(
    connection: sqlite3.Connection, slots: dict[str, Slot], prepared: PreparedRows, id: int
) -> None:
    """Insert one memory like :func:`insert_prepared`, in fewer steps; the most common case on a robot."""
    execute, bits = connection.execute, 0
    for name, (_, (blob,), dim) in prepared.vectors.items():
        slot = add_slot(connection, slots, name, dim).number
        key = SLOTS * id + slot
        execute(INSERT_VECTOR, (key, blob, checksums.VECTOR.sum((key,), blob)))
        bits |= 1 << slot
    scalars = [value for (value,) in prepared.scalars.values()]
    texts = [value for (value,) in prepared.texts.values()]
    parts = to_signed(bits), int(bool(prepared.visits))
    row_sum = checksums.memory_sum(id, scalars, NEW_ACCESS, parts)
    execute(insertion("memory", NEW_COLUMNS), (id, *scalars, *parts, row_sum))
    execute(insertion("body", NEW_TEXTS), (id, *texts, checksums.body_sum(id, texts)))
    text_index.add(connection, [(id, scalars[LABEL], texts[CAPTION])])
    if prepared.visits:
        visits.write(connection, {id: prepared.visits[0]})
    write_new_poses(connection, id, prepared)


def write_new_poses(connection: sqlite3.Connection, first_id: int, prepared: PreparedRows) -> None:
    """Write the poses, and covariances if there are some, of new memories."""
    if prepared.poses.shape[1] == POSE:
        poses.append(connection, first_id, prepared.poses.astype("<f8", copy=False).tobytes())
    else:
        poses.write(connection, np.arange(first_id, first_id + prepared.size), prepared.poses)


def insert_columns(
    connection: sqlite3.Connection, table: str, ids: Sequence[int], columns: Mapping[str, list[Any]]
) -> None:
    """Insert rows; a column that has its default everywhere is not bound, which halves the time."""
    bound = [
        name
        for name, values in columns.items()
        if name not in DEFAULTS or values.count(DEFAULTS[name]) < len(values)
    ]
    rows = zip(ids, *(columns[name] for name in bound), strict=True)
    connection.executemany(insertion(table, tuple(bound)), rows)


@cache
def insertion(table: str, columns: tuple[str, ...]) -> str:
    """Return an INSERT of the id and some columns."""
    names = ("id", *columns)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def read_images(connection: sqlite3.Connection, ids: Sequence[int], *, vectors: bool = True) -> list[Image]:
    """Return the memories in order of the ids, or raise ``UnknownMemoryError``."""
    names = {slot.number: name for name, slot in read_slots(connection).items()}
    found: dict[int, Image] = {}
    for chunk in chunks(ids):
        bound = (json.dumps(chunk),)
        where = read_places(connection, chunk)
        blobs: dict[int, dict[str, bytes]] = {}
        if vectors:
            for key, half, checksum in connection.execute(SELECT_VECTORS, bound):
                if checksum is not None and checksums.VECTOR.sum((key,), half) != checksum:
                    raise damage_error("vector", key // SLOTS)
                blobs.setdefault(key // SLOTS, {})[names[key % SLOTS]] = half
        texts_from = 1 + len(SCALARS) + len(ACCESS)
        for row in connection.execute(SELECT_IMAGES, bound):
            scalars, access = row[1 : 1 + len(SCALARS)], row[1 + len(SCALARS) : texts_from]
            pose, covariance = where[row[0]]
            if np.isnan(pose[POSE - 1]):
                raise CorruptStoreError(f"memory {row[0]} has no pose. Restore a backup")
            texts, vectors_of = row[texts_from:-5], blobs.get(row[0], {})
            check_sums(row[0], scalars, access, texts, row[-4:])
            seen = visits.unpack(row[0], row[-5])
            found[row[0]] = Image(row[0], scalars, access, pose, covariance, texts, vectors_of, seen)
    return in_order(found, ids)


def check_sums(
    id: int, scalars: Sequence[Any], access: Sequence[Any], texts: Sequence[str], stored: Sequence[int | None]
) -> None:
    """Raise :class:`CorruptStoreError` if a memory read differs from what was stored.

    Args:
        scalars, access, texts: as in :class:`Image`.
        stored: encoder bits, whether it has visits, and the checksums of row and texts.
    """
    *parts, row_sum, text_sum = stored
    try:
        wrong = row_sum is not None and row_sum != checksums.memory_sum(id, scalars, access, parts)
        wrong |= text_sum is not None and text_sum != checksums.body_sum(id, texts)
    except (struct.error, TypeError):
        wrong = True
    if wrong:
        raise damage_error("row", id)


def damage_error(what: str, id: int) -> CorruptStoreError:
    """Return the error for a damaged memory."""
    return CorruptStoreError(f"the {what} of memory {id} is damaged. Run recall check --repair")


def read_places(
    connection: sqlite3.Connection, ids: Sequence[int]
) -> dict[int, tuple[tuple[float, ...], tuple[float, ...] | None]]:
    """Return pose and covariance by id, as in :class:`Image`."""
    found = poses.read(connection, np.array(ids, dtype=np.int64), spread=True)
    pose, spread = found[:, :POSE].tolist(), found[:, POSE:].tolist()
    bare = np.isnan(found[:, POSE]).tolist()
    return {id: (tuple(pose[at]), None if bare[at] else tuple(spread[at])) for at, id in enumerate(ids)}


def write_places(connection: sqlite3.Connection, images: Sequence[Image]) -> None:
    """Set poses and covariances to those of the images."""
    nothing = (np.nan,) * SPREAD
    table = np.array([(*image.pose, *(image.covariance or nothing)) for image in images])
    ids = np.array([image.id for image in images], dtype=np.int64)
    poses.write(connection, ids, table.reshape(len(images), POSE_COLUMNS))
    places.loosen(connection, ids)


def delete_images(connection: sqlite3.Connection, images: Sequence[Image]) -> None:
    """Remove the memories and all their rows."""
    text_index.remove(connection, [image.id for image in images])
    ids = [(image.id,) for image in images]
    ranges = [(SLOTS * image.id, SLOTS * image.id + SLOTS - 1) for image in images]
    connection.executemany("DELETE FROM vector WHERE key BETWEEN ? AND ?", ranges)
    connection.executemany("DELETE FROM body WHERE id = ?", ids)
    connection.executemany("DELETE FROM memory WHERE id = ?", ids)
    visits.delete(connection, [image.id for image in images if image.visits])
    poses.clear(connection, np.array([image.id for image in images], dtype=np.int64))


def insert_images(connection: sqlite3.Connection, slots: dict[str, Slot], images: Sequence[Image]) -> None:
    """Restore removed memories, bit for bit."""
    for image in images:
        write_vectors(connection, slots, image)
    connection.executemany(
        insertion("memory", (*SCALARS, *ACCESS, "vectors", "visits")),
        [(i.id, *i.scalars, *i.access, slot_bits(slots, i), bool(i.visits)) for i in images],
    )
    connection.executemany(insertion("body", TEXTS), [(i.id, *i.texts) for i in images])
    for layout in (checksums.MEMORY, checksums.BODY):
        renew(connection, layout, [image.id for image in images])
    text_index.add(connection, [(i.id, i.scalars[LABEL], i.texts[CAPTION]) for i in images])
    visits.write(connection, {image.id: image.visits for image in images})
    write_places(connection, images)


def write_vectors(connection: sqlite3.Connection, slots: dict[str, Slot], image: Image) -> None:
    """Write the vectors of an image."""
    for name, blob in image.vectors.items():
        slot = add_slot(connection, slots, name, len(blob) // 2).number
        key = SLOTS * image.id + slot
        connection.execute(INSERT_VECTOR, (key, blob, checksums.VECTOR.sum((key,), blob)))


def slot_bits(slots: Mapping[str, Slot], image: Image) -> int:
    """Return the bits of the encoders with a vector; their slots exist."""
    return to_signed(sum(1 << slots[name].number for name in image.vectors))


def to_signed(bits: int) -> int:
    """Return 64 bits as the signed number that SQLite stores."""
    return bits - (1 << 64) if bits >> 63 else bits


def replace_images(
    connection: sqlite3.Connection,
    slots: dict[str, Slot],
    before: Sequence[Image],
    after: Sequence[Image],
) -> None:
    """Change memories from one image to another, touching only differences; access counts stay."""
    assign = f"UPDATE memory SET {', '.join(name + ' = ?' for name in SCALARS)} WHERE id = ?"
    assign_texts = f"UPDATE body SET {', '.join(name + ' = ?' for name in TEXTS)} WHERE id = ?"
    for old, new in zip(before, after, strict=True):
        words, new_words = ((i.scalars[LABEL], i.texts[CAPTION]) for i in (old, new))
        if words != new_words:
            text_index.remove(connection, [old.id])
        if old.scalars != new.scalars:
            connection.execute(assign, (*new.scalars, new.id))
        if old.texts != new.texts:
            connection.execute(assign_texts, (*new.texts, new.id))
        if words != new_words:
            text_index.add(connection, [(new.id, *new_words)])
        if old.vectors != new.vectors:
            low = SLOTS * old.id
            connection.execute("DELETE FROM vector WHERE key BETWEEN ? AND ?", (low, low + SLOTS - 1))
            write_vectors(connection, slots, new)
        if old.visits != new.visits:
            visits.delete(connection, [old.id])
            visits.write(connection, {new.id: new.visits})
        if old.vectors != new.vectors or old.visits != new.visits:
            note_parts(connection, checksums.MEMORY, [new.id])
    for layout in (checksums.MEMORY, checksums.BODY):
        renew(connection, layout, [image.id for image in after])
    pairs = zip(before, after, strict=True)
    write_places(connection, [b for a, b in pairs if (a.pose, a.covariance) != (b.pose, b.covariance)])


def read_vectors(connection: sqlite3.Connection, ids: Sequence[int], slot: Slot) -> Vectors:
    """Return the existing vectors of the ids, in their order."""
    kept: list[int] = []
    blobs: list[bytes] = []
    for chunk in chunks(ids):
        keys = json.dumps([SLOTS * id + slot.number for id in chunk])
        sql = (
            "SELECT v.key, v.half FROM json_each(?) AS j CROSS JOIN vector AS v ON v.key = j.value"
            " ORDER BY j.key"
        )
        for key, half in connection.execute(sql, (keys,)):
            kept.append(key // SLOTS)
            blobs.append(half)
    return Vectors.of(kept, blobs, slot.dim)


def scan_vectors(connection: sqlite3.Connection, slot: Slot, *, after_id: int, limit: int) -> Vectors:
    """Return vectors of one slot in order of their ids."""
    rows = connection.execute(
        f"SELECT key, half FROM vector WHERE key >= ? AND key % {SLOTS} = ? ORDER BY key LIMIT ?",
        (SLOTS * (after_id + 1), slot.number, limit),
    ).fetchall()
    return Vectors.of([key // SLOTS for key, _ in rows], [half for _, half in rows], slot.dim)


def scan_columns(
    connection: sqlite3.Connection, *, after_id: int = 0, limit: int = -1, ids: Sequence[int] | None = None
) -> Columns:
    """Return columns by rising id: a range, or the existing ones of ``ids``."""
    select = (
        "SELECT m.id, m.time_ns, m.confidence, m.reward, m.importance, m.marked, m.count,"
        " m.access_count, coalesce(m.accessed_ns, m.time_ns), m.map_id, m.label, m.kind, m.state,"
        " m.velocity FROM "
    )
    if ids is None:
        sql = select + "memory AS m WHERE m.id > ? ORDER BY m.id LIMIT ?"
        cursors = iter([connection.execute(sql, (after_id, limit))])
    else:
        sql = select + "json_each(?) AS j CROSS JOIN memory AS m ON m.id = j.value ORDER BY m.id"
        cursors = (connection.execute(sql, (json.dumps(chunk),)) for chunk in chunks(sorted(set(ids))))
    columns: list[list[Any]] = [[] for _ in range(14)]
    for cursor in cursors:
        while rows := cursor.fetchmany(STRETCH):
            for column, values in zip(columns, zip(*rows, strict=True), strict=True):
                column += values
    return Columns.of(columns, poses.read(connection, np.array(columns[0], dtype=np.int64)))


@cache
def selection(layout: Layout) -> str:
    """Return a SELECT of the key, the columns of the checksum, and the checksum.

    Append conditions on ``t``.
    """
    parts = [f"coalesce(t.{name}, {checksums.NO_NUMBER})" for name in layout.numbers]
    parts += [
        f"CASE typeof(t.{name}) WHEN '{checksums.kind_of(name)}' THEN CAST(t.{name} AS BLOB)"
        " WHEN 'null' THEN x'ff' ELSE x'fe' END"
        for name in layout.texts
    ]
    parts += [
        f"CASE typeof(t.{name}) WHEN 'text' THEN CAST(t.{name} AS BLOB) WHEN 'null' THEN NULL ELSE x'fe' END"
        for name in layout.later
    ]
    return f"SELECT t.{layout.key}, {', '.join(parts)}, t.crc FROM {layout.table} AS t"


def renew(connection: sqlite3.Connection, layout: Layout, keys: Sequence[int]) -> None:
    """Recompute the checksums of rows changed within this transaction."""
    select = selection(layout)
    if len(keys) <= 2:
        rows = [
            row for key in keys for row in connection.execute(f"{select} WHERE t.{layout.key} = ?", (key,))
        ]
    else:
        source = f"{select} WHERE t.{layout.key} IN (SELECT value FROM json_each(?))"
        rows = connection.execute(source, (json.dumps(list(keys)),)).fetchall()
    assign = f"UPDATE {layout.table} SET crc = ? WHERE {layout.key} = ?"
    connection.executemany(assign, [(layout.sum_of(row), row[0]) for row in rows])


def note_parts(connection: sqlite3.Connection, layout: Layout, keys: Sequence[int]) -> None:
    """Record in rows which further rows belong to them."""
    some = "IN (SELECT value FROM json_each(?))"
    if layout is checksums.MEMORY:
        connection.execute(
            "UPDATE memory SET visits = EXISTS (SELECT 1 FROM visited WHERE visited.id = memory.id),"
            " vectors = (SELECT coalesce(sum(1 << (key % 64)), 0) FROM vector"
            f" WHERE key BETWEEN 64 * memory.id AND 64 * memory.id + 63) WHERE id {some}",
            (json.dumps(list(keys)),),
        )
    elif layout is checksums.POSE:
        has = "EXISTS (SELECT 1 FROM spread WHERE spread.chunk = pose.chunk)"
        connection.execute(f"UPDATE pose SET spread = {has} WHERE chunk {some}", (json.dumps(list(keys)),))
