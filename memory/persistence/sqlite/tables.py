"""Rows in and out of the tables: every function works within the caller's transaction."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.errors import CorruptStoreError, DimensionError, UnknownMemoryError
from memory.persistence import checksums, poses, visits
from memory.persistence.rows import (
    ACCESS,
    DEFAULT_SLOT,
    DEFAULTS,
    SCALARS,
    SLOTS,
    TEXTS,
    Image,
    Prepared,
    Slot,
)
from memory.persistence.sql import Connection
from memory.persistence.sqlite import places, text_index
from memory.types import Memory

#: Ids that are bound at once.
CHUNK = 4096

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

#: Columns that are bound of one new row, and what counts as the accesses to it.
NEW_COLUMNS, NEW_TEXTS = (*SCALARS, "vectors", "visits", "crc"), (*TEXTS, "crc")
NEW_ACCESS = tuple(DEFAULTS[name] for name in ACCESS)
LABEL, CAPTION = SCALARS.index("label"), TEXTS.index("caption")


class Vectors(NamedTuple):
    """Vectors of one slot.

    Attributes:
        ids: (n,) int64.
        halves: (n, dim) float16 unit vectors.
    """

    ids: NDArray[np.int64]
    halves: NDArray[np.float16]


def chunks(ids: Iterable[int]) -> Iterator[list[int]]:
    """The ids in lists that are short enough to be bound."""
    found = iter(ids)
    while chunk := list(islice(found, CHUNK)):
        yield chunk


def check_new(rows: Iterable[Memory]) -> None:
    """Raise ``ValueError`` where a row to add has an id."""
    if any(row.id is not None for row in rows):
        raise ValueError("rows to add must not have an id: the store gives it")


def read_slots(connection: Connection) -> dict[str, Slot]:
    """The slots by name."""
    return {
        name: Slot(slot, dim) for slot, name, dim in connection.execute("SELECT slot, name, dim FROM slot")
    }


def add_slot(connection: sqlite3.Connection, slots: dict[str, Slot], name: str, dim: int) -> Slot:
    """The slot of this name, made where there is none.

    Raises:
        DimensionError: it exists with another length.
        ValueError: no number is left, and each of the others has a vector.
    """
    if name not in slots:
        if len(slots) == SLOTS:
            drop_empty_slots(connection, slots)
        numbers = {slot.number for slot in slots.values()}
        number = next((each for each in range(SLOTS) if each not in numbers), None)
        if number is None:
            raise ValueError(f"a store has at most {SLOTS} encoders; there is no room for {name!r}")
        connection.execute(
            "INSERT INTO slot (slot, name, dim, crc) VALUES (?, ?, ?, ?)",
            (number, name, dim, checksums.SLOT.sum((number, dim), name.encode())),
        )
        slots[name] = Slot(number, dim)
    if slots[name].dim != dim:
        raise DimensionError(f"the {name!r} vector has {dim} numbers, the store takes {slots[name].dim}")
    return slots[name]


def drop_empty_slots(connection: sqlite3.Connection, slots: dict[str, Slot]) -> None:
    """Make room for other encoders: those without a single vector go, but not the default one.

    It looks at all keys, and is therefore left until a number is needed.
    """
    used = {number for (number,) in connection.execute(f"SELECT DISTINCT key % {SLOTS} FROM vector")}
    for name in [name for name, slot in slots.items() if slot.number not in used and name != DEFAULT_SLOT]:
        connection.execute("DELETE FROM slot WHERE slot = ?", (slots.pop(name).number,))


def insert_prepared(
    connection: sqlite3.Connection, slots: dict[str, Slot], prepared: Prepared, first_id: int
) -> None:
    """New memories with rising ids."""
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
        "vectors": [signed(some) for some in bits],
        "visits": [int(position in prepared.visits) for position in range(prepared.size)],
    }
    insert_columns(connection, "memory", ids, {**scalars, "crc": checksums.memory_sums(ids, scalars)})
    sums = checksums.body_sums(ids, prepared.texts)
    insert_columns(connection, "body", ids, {**prepared.texts, "crc": sums})
    words = prepared.scalars["label"], prepared.texts["caption"]
    text_index.add(connection, zip(ids, *words, strict=True))
    if prepared.visits:
        visits.write(connection, {first_id + position: kept for position, kept in prepared.visits.items()})
    poses.write(connection, np.arange(first_id, first_id + prepared.size), prepared.poses)


def insert_one(connection: sqlite3.Connection, slots: dict[str, Slot], prepared: Prepared, id: int) -> None:
    """The same for one: what a robot stores most often, in few steps."""
    execute, bits = connection.execute, 0
    for name, (_, (blob,), dim) in prepared.vectors.items():
        slot = add_slot(connection, slots, name, dim).number
        key = SLOTS * id + slot
        execute(INSERT_VECTOR, (key, blob, checksums.VECTOR.sum((key,), blob)))
        bits |= 1 << slot
    scalars = [value for (value,) in prepared.scalars.values()]
    texts = [value for (value,) in prepared.texts.values()]
    parts = signed(bits), int(bool(prepared.visits))
    row_sum = checksums.memory_sum(id, scalars, NEW_ACCESS, parts)
    execute(insertion("memory", NEW_COLUMNS), (id, *scalars, *parts, row_sum))
    execute(insertion("body", NEW_TEXTS), (id, *texts, checksums.body_sum(id, texts)))
    text_index.add(connection, [(id, scalars[LABEL], texts[CAPTION])])
    if prepared.visits:
        visits.write(connection, {id: prepared.visits[0]})
    if prepared.poses.shape[1] == poses.POSE:
        poses.write_one(connection, id, prepared.poses[0].tolist())
    else:
        poses.write(connection, np.array([id]), prepared.poses)


def insert_columns(
    connection: sqlite3.Connection, table: str, ids: Sequence[int], columns: Mapping[str, list[Any]]
) -> None:
    """Rows of a table; what is the same default in all of them is not bound, which takes half the time."""
    bound = [
        name
        for name, values in columns.items()
        if name not in DEFAULTS or values.count(DEFAULTS[name]) < len(values)
    ]
    rows = zip(ids, *(columns[name] for name in bound), strict=True)
    connection.executemany(insertion(table, tuple(bound)), rows)


@cache
def insertion(table: str, columns: tuple[str, ...]) -> str:
    """An INSERT of the id and some columns."""
    names = ("id", *columns)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def read_images(connection: sqlite3.Connection, ids: Sequence[int], *, vectors: bool = True) -> list[Image]:
    """The memories in the order of the ids.

    Raises:
        UnknownMemoryError: naming the ids that are not there.
    """
    names = {slot.number: name for name, slot in read_slots(connection).items()}
    found: dict[int, Image] = {}
    for chunk in chunks(ids):
        bound = (json.dumps(chunk),)
        where = read_places(connection, chunk)
        blobs: dict[int, dict[str, bytes]] = {}
        if vectors:
            for key, half, told in connection.execute(SELECT_VECTORS, bound):
                if told is not None and checksums.VECTOR.sum((key,), half) != told:
                    raise damaged("vector", key // SLOTS)
                blobs.setdefault(key // SLOTS, {})[names[key % SLOTS]] = half
        texts_from = 1 + len(SCALARS) + len(ACCESS)
        for row in connection.execute(SELECT_IMAGES, bound):
            scalars, access = row[1 : 1 + len(SCALARS)], row[1 + len(SCALARS) : texts_from]
            pose, covariance = where[row[0]]
            if np.isnan(pose[poses.POSE - 1]):
                raise CorruptStoreError(f"memory {row[0]} has no pose: restore a backup")
            texts, vectors_of = row[texts_from:-5], blobs.get(row[0], {})
            check_sums(row[0], scalars, access, texts, row[-4:])
            seen = visits.unpack(row[0], row[-5])
            found[row[0]] = Image(row[0], scalars, access, pose, covariance, texts, vectors_of, seen)
    missing = [id for id in ids if id not in found]
    if missing:
        shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        raise UnknownMemoryError(f"no memory has the id {shown}")
    return [found[id] for id in ids]


def check_sums(
    id: int, scalars: Sequence[Any], access: Sequence[Any], texts: Sequence[str], told: Sequence[int | None]
) -> None:
    """Raise :class:`CorruptStoreError` where what was read of a memory is not what was stored.

    Args:
        id: of the memory.
        scalars, access, texts: as of an :class:`Image`.
        told: encoders that it has vectors of, whether it has visits, and the checksums of row and texts.
    """
    *parts, row_sum, text_sum = told
    try:
        wrong = row_sum is not None and row_sum != checksums.memory_sum(id, scalars, access, parts)
        wrong |= text_sum is not None and text_sum != checksums.body_sum(id, texts)
    except (struct.error, TypeError):
        wrong = True
    if wrong:
        raise damaged("row", id)


def damaged(what: str, id: int) -> CorruptStoreError:
    """The error for a memory that is not what was stored."""
    return CorruptStoreError(f"the {what} of memory {id} is damaged: run check(repair=True)")


def read_places(
    connection: sqlite3.Connection, ids: Sequence[int]
) -> dict[int, tuple[tuple[float, ...], tuple[float, ...] | None]]:
    """Pose and covariance by id, as an :class:`Image` has them."""
    found = poses.read(connection, np.array(ids, dtype=np.int64), spread=True)
    pose, spread = found[:, : poses.POSE].tolist(), found[:, poses.POSE :].tolist()
    bare = np.isnan(found[:, poses.POSE]).tolist()
    return {id: (tuple(pose[at]), None if bare[at] else tuple(spread[at])) for at, id in enumerate(ids)}


def write_places(connection: sqlite3.Connection, images: Sequence[Image]) -> None:
    """Make poses and covariances those of the images."""
    nothing = (np.nan,) * poses.SPREAD
    table = np.array([(*image.pose, *(image.covariance or nothing)) for image in images])
    ids = np.array([image.id for image in images], dtype=np.int64)
    poses.write(connection, ids, table.reshape(len(images), poses.POSE_COLUMNS))
    places.loosen(connection, ids)


def delete_images(connection: sqlite3.Connection, images: Sequence[Image]) -> None:
    """Remove the memories and everything that hangs on them."""
    text_index.remove(connection, [image.id for image in images])
    ids = [(image.id,) for image in images]
    ranges = [(SLOTS * image.id, SLOTS * image.id + SLOTS - 1) for image in images]
    connection.executemany("DELETE FROM vector WHERE key BETWEEN ? AND ?", ranges)
    connection.executemany("DELETE FROM body WHERE id = ?", ids)
    connection.executemany("DELETE FROM memory WHERE id = ?", ids)
    visits.delete(connection, [image.id for image in images if image.visits])
    poses.clear(connection, np.array([image.id for image in images], dtype=np.int64))


def insert_images(connection: sqlite3.Connection, slots: dict[str, Slot], images: Sequence[Image]) -> None:
    """Put removed memories back, to the last bit."""
    for image in images:
        write_vectors(connection, slots, image)
    connection.executemany(
        insertion("memory", (*SCALARS, *ACCESS, "vectors", "visits")),
        [(i.id, *i.scalars, *i.access, slot_bits(slots, i), bool(i.visits)) for i in images],
    )
    connection.executemany(insertion("body", TEXTS), [(i.id, *i.texts) for i in images])
    for layout in (checksums.MEMORY, checksums.BODY):
        checksums.renew(connection, layout, [image.id for image in images])
    text_index.add(connection, [(i.id, i.scalars[LABEL], i.texts[CAPTION]) for i in images])
    visits.write(connection, {image.id: image.visits for image in images})
    write_places(connection, images)


def write_vectors(connection: sqlite3.Connection, slots: dict[str, Slot], image: Image) -> None:
    """Make the vectors of a memory those of the image."""
    for name, blob in image.vectors.items():
        slot = add_slot(connection, slots, name, len(blob) // 2).number
        key = SLOTS * image.id + slot
        connection.execute(INSERT_VECTOR, (key, blob, checksums.VECTOR.sum((key,), blob)))


def slot_bits(slots: Mapping[str, Slot], image: Image) -> int:
    """The encoders that a memory has vectors of, whose slots exist."""
    return signed(sum(1 << slots[name].number for name in image.vectors))


def signed(bits: int) -> int:
    """64 bits as the number that SQLite keeps."""
    return bits - (1 << 64) if bits >> 63 else bits


def replace_images(
    connection: sqlite3.Connection,
    slots: dict[str, Slot],
    before: Sequence[Image],
    after: Sequence[Image],
) -> None:
    """Change memories from one image to another, touching only what differs; access counts stay."""
    assign = f"UPDATE memory SET {', '.join(name + ' = ?' for name in SCALARS)} WHERE id = ?"
    assign_texts = f"UPDATE body SET {', '.join(name + ' = ?' for name in TEXTS)} WHERE id = ?"
    for old, new in zip(before, after, strict=True):
        said, says = ((i.scalars[LABEL], i.texts[CAPTION]) for i in (old, new))
        if said != says:
            text_index.remove(connection, [old.id])
        if old.scalars != new.scalars:
            connection.execute(assign, (*new.scalars, new.id))
        if old.texts != new.texts:
            connection.execute(assign_texts, (*new.texts, new.id))
        if said != says:
            text_index.add(connection, [(new.id, *says)])
        if old.vectors != new.vectors:
            low = SLOTS * old.id
            connection.execute("DELETE FROM vector WHERE key BETWEEN ? AND ?", (low, low + SLOTS - 1))
            write_vectors(connection, slots, new)
        if old.visits != new.visits:
            visits.delete(connection, [old.id])
            visits.write(connection, {new.id: new.visits})
        if old.vectors != new.vectors or old.visits != new.visits:
            checksums.note_parts(connection, checksums.MEMORY, [new.id])
    for layout in (checksums.MEMORY, checksums.BODY):
        checksums.renew(connection, layout, [image.id for image in after])
    pairs = zip(before, after, strict=True)
    write_places(connection, [b for a, b in pairs if (a.pose, a.covariance) != (b.pose, b.covariance)])


def read_vectors(connection: sqlite3.Connection, ids: Sequence[int], slot: Slot) -> Vectors:
    """Those of the ids that have a vector, in the order of the ids."""
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
    return as_vectors(kept, blobs, slot.dim)


def as_vectors(ids: Sequence[int], blobs: Sequence[bytes], dim: int) -> Vectors:
    """Arrays of what the table holds."""
    halves = np.frombuffer(b"".join(blobs), "<f2").reshape(len(ids), dim)
    return Vectors(np.array(ids, dtype=np.int64), halves)
