"""Rows in and out of the tables: every function works within the caller's transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.errors import DimensionError, UnknownMemoryError
from memory.persistence.records import ACCESS, SCALARS, SLOTS, TEXTS, Image, Prepared, Slot, clamp
from memory.types import check_integer

#: Ids that are bound at once.
CHUNK = 4096

INSERT_MEMORY = (
    f"INSERT INTO memory (id, {', '.join(SCALARS + ACCESS)})"
    f" VALUES ({', '.join('?' * (1 + len(SCALARS) + len(ACCESS)))})"
)
INSERT_BODY = f"INSERT INTO body (id, {', '.join(TEXTS)}) VALUES ({', '.join('?' * (1 + len(TEXTS)))})"
INSERT_VECTOR = "INSERT OR REPLACE INTO vector (key, half) VALUES (?, ?)"
INSERT_WORDS = "INSERT INTO words (rowid, label, caption) VALUES (?, ?, ?)"
DELETE_WORDS = "INSERT INTO words (words, rowid, label, caption) VALUES ('delete', ?, ?, ?)"
INSERT_PLACE = "INSERT INTO place (id, x0, x1, y0, y1) VALUES (?, ?, ?, ?, ?)"
UPDATE_PLACE = "UPDATE place SET x0 = ?, x1 = ?, y0 = ?, y1 = ? WHERE id = ?"
SELECT_IMAGES = (
    f"SELECT m.id, {', '.join('m.' + name for name in SCALARS + ACCESS)},"
    f" {', '.join('b.' + name for name in TEXTS)}"
    " FROM json_each(?) AS j CROSS JOIN memory AS m ON m.id = j.value JOIN body AS b ON b.id = m.id"
)
SELECT_VECTORS = (
    "SELECT v.key, v.half FROM json_each(?) AS j CROSS JOIN vector AS v"
    f" ON v.key BETWEEN j.value * {SLOTS} AND j.value * {SLOTS} + {SLOTS - 1}"
)

LABEL, X, Y = SCALARS.index("label"), SCALARS.index("x"), SCALARS.index("y")
CAPTION = TEXTS.index("caption")


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


def check_ids(ids: Iterable[int]) -> list[int]:
    """As plain integers, or raise ``TypeError``."""
    values = ids.tolist() if isinstance(ids, np.ndarray) else ids
    return [check_integer("id", value) for value in values]


def read_slots(connection: sqlite3.Connection) -> dict[str, Slot]:
    """The slots by name."""
    return {
        name: Slot(slot, dim) for slot, name, dim in connection.execute("SELECT slot, name, dim FROM slot")
    }


def add_slot(connection: sqlite3.Connection, slots: dict[str, Slot], name: str, dim: int) -> Slot:
    """The slot of this name, made where there is none.

    Raises:
        DimensionError: it exists with another length.
        ValueError: no number is left.
    """
    if name not in slots:
        if len(slots) == SLOTS:
            raise ValueError(f"a store has at most {SLOTS} encoders; there is no room for {name!r}")
        connection.execute("INSERT INTO slot (slot, name, dim) VALUES (?, ?, ?)", (len(slots), name, dim))
        slots[name] = Slot(len(slots), dim)
    if slots[name].dim != dim:
        raise DimensionError(f"the {name!r} vector has {dim} numbers, the store takes {slots[name].dim}")
    return slots[name]


def insert_prepared(
    connection: sqlite3.Connection, slots: dict[str, Slot], prepared: Prepared, first_id: int
) -> None:
    """New memories with rising ids."""
    never = (0, None)
    ids = range(first_id, first_id + len(prepared.scalars))
    scalars, texts = prepared.scalars, prepared.texts
    connection.executemany(INSERT_MEMORY, [(i, *row, *never) for i, row in zip(ids, scalars, strict=True)])
    connection.executemany(INSERT_BODY, [(i, *row) for i, row in zip(ids, texts, strict=True)])
    for name, (positions, blobs, dim) in prepared.vectors.items():
        slot = add_slot(connection, slots, name, dim).number
        keys = [SLOTS * (first_id + position) + slot for position in positions]
        connection.executemany(INSERT_VECTOR, list(zip(keys, blobs, strict=True)))
    index_rows(connection, [(i, s, t) for i, s, t in zip(ids, scalars, texts, strict=True)])


def index_rows(
    connection: sqlite3.Connection, rows: Sequence[tuple[int, Sequence[Any], Sequence[Any]]]
) -> None:
    """Enter (id, scalars, texts) into the text index and the R*Tree."""
    connection.executemany(INSERT_WORDS, [(i, s[LABEL], t[CAPTION]) for i, s, t in rows])
    connection.executemany(INSERT_PLACE, [(i, *place_of(s[X], s[Y])) for i, s, _ in rows])


def place_of(x: float, y: float) -> tuple[float, float, float, float]:
    """What the R*Tree is given for a position: x0, x1, y0, y1."""
    x, y = clamp(x), clamp(y)
    return x, x, y, y


def read_images(connection: sqlite3.Connection, ids: Sequence[int], *, vectors: bool = True) -> list[Image]:
    """The memories in the order of the ids.

    Raises:
        UnknownMemoryError: naming the ids that are not there.
    """
    names = {slot.number: name for name, slot in read_slots(connection).items()}
    found: dict[int, Image] = {}
    for chunk in chunks(ids):
        bound = (json.dumps(chunk),)
        blobs: dict[int, dict[str, bytes]] = {}
        if vectors:
            for key, half in connection.execute(SELECT_VECTORS, bound):
                blobs.setdefault(key // SLOTS, {})[names[key % SLOTS]] = half
        texts_from = 1 + len(SCALARS) + len(ACCESS)
        for row in connection.execute(SELECT_IMAGES, bound):
            scalars, access = row[1 : 1 + len(SCALARS)], row[1 + len(SCALARS) : texts_from]
            found[row[0]] = Image(row[0], scalars, access, row[texts_from:], blobs.get(row[0], {}))
    missing = [id for id in ids if id not in found]
    if missing:
        shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        raise UnknownMemoryError(f"no memory has the id {shown}")
    return [found[id] for id in ids]


def delete_images(connection: sqlite3.Connection, images: Sequence[Image]) -> None:
    """Remove the memories and everything that hangs on them."""
    connection.executemany(DELETE_WORDS, [(i.id, i.scalars[LABEL], i.texts[CAPTION]) for i in images])
    ids = [(image.id,) for image in images]
    connection.executemany("DELETE FROM place WHERE id = ?", ids)
    ranges = [(SLOTS * image.id, SLOTS * image.id + SLOTS - 1) for image in images]
    connection.executemany("DELETE FROM vector WHERE key BETWEEN ? AND ?", ranges)
    connection.executemany("DELETE FROM memory WHERE id = ?", ids)  # ``body`` goes with it.


def insert_images(connection: sqlite3.Connection, slots: dict[str, Slot], images: Sequence[Image]) -> None:
    """Put removed memories back, to the last bit."""
    connection.executemany(INSERT_MEMORY, [(i.id, *i.scalars, *i.access) for i in images])
    connection.executemany(INSERT_BODY, [(i.id, *i.texts) for i in images])
    index_rows(connection, [(i.id, i.scalars, i.texts) for i in images])
    for image in images:
        write_vectors(connection, slots, image)


def write_vectors(connection: sqlite3.Connection, slots: dict[str, Slot], image: Image) -> None:
    """Make the vectors of a memory those of the image."""
    for name, blob in image.vectors.items():
        slot = add_slot(connection, slots, name, len(blob) // 2).number
        connection.execute(INSERT_VECTOR, (SLOTS * image.id + slot, blob))


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
        if old.scalars != new.scalars:
            connection.execute(assign, (*new.scalars, new.id))
        if old.texts != new.texts:
            connection.execute(assign_texts, (*new.texts, new.id))
        if (old.scalars[LABEL], old.texts[CAPTION]) != (new.scalars[LABEL], new.texts[CAPTION]):
            connection.execute(DELETE_WORDS, (old.id, old.scalars[LABEL], old.texts[CAPTION]))
            connection.execute(INSERT_WORDS, (new.id, new.scalars[LABEL], new.texts[CAPTION]))
        if (old.scalars[X], old.scalars[Y]) != (new.scalars[X], new.scalars[Y]):
            connection.execute(UPDATE_PLACE, (*place_of(new.scalars[X], new.scalars[Y]), new.id))
        if old.vectors != new.vectors:
            low = SLOTS * old.id
            connection.execute("DELETE FROM vector WHERE key BETWEEN ? AND ?", (low, low + SLOTS - 1))
            write_vectors(connection, slots, new)


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
