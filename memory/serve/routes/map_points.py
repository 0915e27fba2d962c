"""Points of the map: a few columns of all memories in a binary format for browsers.

The answer to ``GET /api/map`` is little-endian: the length of a header (uint32), the header (JSON, padded
with spaces to a multiple of eight bytes), then the columns, padded likewise. The header lists their names,
types and offsets. Times are seconds since the epoch. ``x`` and ``y`` are metres from the header's ``origin``,
NaN if unknown. ``label``, ``map``, ``kind`` and ``state`` are indexes into the header's lists. ``removed``
holds the ids of removed memories.
"""

from __future__ import annotations

import gzip
import json
import secrets
import threading
from collections import OrderedDict
from typing import Annotated, Any, NamedTuple

import numpy as np
from fastapi import APIRouter, Query, Request
from numpy.typing import NDArray
from starlette.responses import Response

from memory.persistence.database import Database
from memory.persistence.deadline import without_limit
from memory.persistence.engine import engine_of
from memory.persistence.ids import chunks
from memory.persistence.log import journal
from memory.persistence.log.journal import Changes
from memory.persistence.sql import Connection
from memory.serve.openapi.requests import plain
from memory.serve.service import ServiceOf
from memory.types import KINDS, STATES

router = APIRouter(prefix="/api")
#: Maximum memories of an answer: those seen last.
MOST = 200_000
#: Maximum changes of an incremental answer; beyond it, all memories are sent.
FEW = 20_000
#: Minimum bytes for compression.
COMPRESSED = 16_384
#: Extent in metres up to which single precision resolves half a centimetre.
SINGLE_M = 65_536.0
#: Maximum cached answers.
KEPT = 8
_SELECT = (
    "SELECT m.id, coalesce(m.first_seen_ns, m.time_ns), coalesce(m.last_seen_ns, m.time_ns), m.importance,"
    " m.count, m.marked, m.map_id, m.label, m.kind, m.state FROM memory AS m"
)
_ROWS = np.dtype([
    ("id", "<i8"), ("first", "<f8"), ("last", "<f8"), ("x", "<f8"), ("y", "<f8"), ("importance", "<f4"),
    ("count", "<u4"), ("map", "<u4"), ("label", "<u4"), ("kind", "u1"), ("state", "u1"), ("marked", "u1"),
])  # fmt: skip
_ROWS_READ = 4096


class MapAnswer(NamedTuple):
    """Answer with its version; ``compressed`` is true if ``body`` is gzip."""

    body: bytes
    version: str
    compressed: bool


class MapColumns:
    """Columns of the map, cached in RAM and updated by the operations of the store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        # Distinguishes versions of this service from those of an earlier one.
        self._name = secrets.token_hex(4)
        self._generation = -1
        self._rows = np.zeros(0, _ROWS)
        self._codes: dict[str, dict[str, int]] = {"map": {}, "label": {}}
        self._kept: OrderedDict[tuple[Any, ...], MapAnswer] = OrderedDict()

    def answer(self, *, map_id: str | None, since: str | None, limit: int, compress: bool) -> MapAnswer:
        """Return all columns, or the changes since a version.

        Args:
            map_id: only this map.
            since: version of an earlier answer; unknown versions are ignored.
            limit: maximum rows; those seen last.
            compress: True if the client accepts gzip.
        """
        with self._lock, without_limit():
            changes = self._follow(self._generation_of(since))
            version = f"{self._name}-{self._generation}"
            base = None if changes is None else since
            key = (version, map_id, base, limit, compress)
            if key not in self._kept:
                body = self._body(map_id, changes, base, version, limit)
                packed = compress and len(body) >= COMPRESSED
                body = gzip.compress(body, compresslevel=1, mtime=0) if packed else body
                self._kept[key] = MapAnswer(body, version, packed)
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]

    def _generation_of(self, version: str | None) -> int | None:
        name, _, number = (version or "").partition("-")
        return int(number) if name == self._name and number.isascii() and number.isdecimal() else None

    def _follow(self, since: int | None) -> Changes | None:
        """Update the columns; return the changes since a generation if they are known and few."""
        with self._database._read() as connection:
            if self._generation < 0:
                self._rows, self._generation = self._read(connection, None), _latest(connection)
            elif (
                changes := journal.read_changes(connection, self._generation)
            ).generation > self._generation:
                self._patch(connection, changes)
            if since is None or not 0 <= since <= self._generation:
                return None
            found = journal.read_changes(connection, since)
        return found if len(found.added) + len(found.removed) + len(found.changed) <= FEW else None

    def _patch(self, connection: Connection, changes: Changes) -> None:
        touched = np.union1d(np.concatenate([changes.added, changes.changed]), changes.removed)
        kept = self._rows[~np.isin(self._rows["id"], touched)]
        there = np.setdiff1d(touched, changes.removed)
        rows = np.concatenate([kept, self._read(connection, there)])
        self._rows = rows[np.argsort(rows["id"], kind="stable")]
        self._generation = changes.generation
        self._kept.clear()

    def _read(self, connection: Connection, ids: NDArray[np.int64] | None) -> NDArray[np.void]:
        """Return the rows of all memories, or of ids, in order of the ids."""
        if ids is None:
            cursors = iter([connection.execute(f"{_SELECT} ORDER BY m.id")])
        else:
            some = (engine_of(connection).one_of("m.id", chunk) for chunk in chunks(ids.tolist()))
            cursors = (
                connection.execute(f"{_SELECT} WHERE {each.sql} ORDER BY m.id", each.parameters)
                for each in some
            )
        parts = [np.zeros(0, _ROWS)]
        for cursor in cursors:
            while rows := cursor.fetchmany(_ROWS_READ):
                parts.append(self._coded(list(zip(*rows, strict=True))))
        found = np.concatenate(parts)
        table = engine_of(connection).read_poses(connection, found["id"].astype(np.int64))
        found["x"], found["y"] = table[:, 0], table[:, 1]
        return found

    def _coded(self, columns: list[tuple[Any, ...]]) -> NDArray[np.void]:
        ids, first, last, importance, count, marked, maps, labels, kinds, states = columns
        found = np.zeros(len(ids), _ROWS)
        found["id"] = ids
        found["first"] = np.array(first, np.int64) / 1e9
        found["last"] = np.array(last, np.int64) / 1e9
        found["importance"] = np.clip(np.array(importance, np.float64), 0.0, 1.0)
        found["count"] = np.minimum(np.array(count, np.int64), 2**32 - 1)
        found["marked"] = np.array(marked, np.bool_)
        for name, values in (("map", maps), ("label", labels)):
            codes = self._codes[name]
            found[name] = [codes.setdefault(value, len(codes)) for value in values]
        found["kind"] = [KINDS.index(value) for value in kinds]
        found["state"] = [STATES.index(value) for value in states]
        return found

    def _body(
        self, map_id: str | None, changes: Changes | None, base: str | None, version: str, limit: int
    ) -> bytes:
        rows, removed = self._rows, np.zeros(0, np.int64)
        if changes is not None:
            touched = np.concatenate([changes.added, changes.changed])
            rows, removed = rows[np.isin(rows["id"], touched)], changes.removed
        if map_id is not None:
            here = rows["map"] == self._codes["map"].get(map_id, -1)
            if changes is not None:
                # The memory may have been in this map before.
                removed = np.union1d(removed, rows["id"][~here])
            rows = rows[here]
        total = len(rows)
        if total > limit:
            rows = rows[np.sort(np.argpartition(rows["last"], total - limit)[total - limit :])]
        counts = np.bincount(self._rows["map"], minlength=len(self._codes["map"])).tolist()
        header = {
            "version": version,
            "base": base,
            "count": len(rows),
            "total": total,
            "maps": list(self._codes["map"]),
            "map_counts": counts,
            "labels": list(self._codes["label"]),
            "kinds": KINDS,
            "states": STATES,
        }
        return write_columns(header, rows, removed)


def write_columns(header: dict[str, Any], rows: NDArray[np.void], removed: NDArray[np.int64]) -> bytes:
    """Return the answer in the format of this module; ``header`` lacks ``origin`` and ``columns``."""
    columns: dict[str, NDArray[Any]] = {
        name: np.ascontiguousarray(rows[name]) for name in rows.dtype.names or ()
    }
    columns["id"], columns["removed"] = columns["id"].astype("<f8"), removed.astype("<f8")
    origin = [0.0, 0.0]
    for axis, name in enumerate(("x", "y")):
        column = columns[name]
        known = column[~np.isnan(column)]
        with np.errstate(over="ignore"):
            near = len(known) > 0 and np.ptp(known) < SINGLE_M
        if near:
            origin[axis] = float(np.floor((known.min() + known.max()) / 2))
            columns[name] = (column - origin[axis]).astype("<f4")
    for name in ("map", "label"):
        if len(columns[name]) == 0 or columns[name].max() < 2**16:
            columns[name] = columns[name].astype("<u2")
    parts = [column.tobytes() for column in columns.values()]
    sizes = [len(part) + -len(part) % 8 for part in parts]
    header = header | {"origin": origin, "columns": []}
    # The column offsets depend on the length of the header, so they have a fixed width.
    for name, column in columns.items():
        entry = {"name": name, "type": column.dtype.name, "length": len(column), "at": 10**11}
        header["columns"].append(entry)
    start = 4 + len(json.dumps(header).encode())
    start += -start % 8
    for entry, size in zip(header["columns"], sizes, strict=True):
        entry["at"], start = start, start + size
    text = json.dumps(header).encode()
    first = header["columns"][0]["at"]
    text = text.ljust(first - 4)
    body = b"".join(part.ljust(size, b"\0") for part, size in zip(parts, sizes, strict=True))
    return np.array(len(text), "<u4").tobytes() + text + body


def _latest(connection: Connection) -> int:
    return int(connection.execute("SELECT coalesce(max(generation), 0) FROM log").fetchone()[0])


@router.get(
    "/map",
    summary="Where and when memories are, as columns for a map",
    response_class=Response,
    responses={
        200: {
            "description": "A header's length, the header in JSON, and columns of little-endian numbers",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        },
        304: {"description": "Nothing changed since the answer whose ETag was sent"},
    },
)
async def map_columns(
    request: Request,
    service: ServiceOf,
    map_id: Annotated[str | None, Query(description="only this map")] = None,
    since: Annotated[
        str | None, Query(max_length=60, description="version of an earlier answer, to get only the changes")
    ] = None,
    most: Annotated[int, Query(ge=1, le=MOST, description="maximum memories: those seen last")] = MOST,
) -> Response:
    """Return all memories, or the changes since a known version; ``base`` in the header tells which."""
    plain("map_id", map_id)
    columns: MapColumns = request.app.state.map_columns
    gzipped = "gzip" in request.headers.get("accept-encoding", "").lower()
    found = await service.work_aside(columns.answer, map_id=map_id, since=since, limit=most, compress=gzipped)
    etag = f'"{found.version}"'
    headers = {"etag": etag, "vary": "accept-encoding"}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if found.compressed:
        headers["content-encoding"] = "gzip"
    return Response(found.body, media_type="application/octet-stream", headers=headers)
