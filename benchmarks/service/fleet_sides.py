"""The same rows and the same questions for a store in a folder, one on a server, and pgvector alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import psycopg
from numpy.typing import NDArray

from memory import Memory, MemoryStore, Query, StoreConfig
from memory.persistence.postgres import server as local
from memory.persistence.postgres.images import COPY_END, COPY_HEAD
from memory.persistence.postgres.upkeep import Upkeep

#: Nanoseconds between two memories; a label in so many; metres of the street on which they lie.
STEP_NS, LABELS, LENGTH_M = 1_000_000_000, 50, 1000.0
#: Share of a common label (one in 50), and of a rare one.
RARE_EVERY = 1000
#: Vectors from which an index is made.
INDEX_FROM = 10_000
#: Rows that are drawn together.
BLOCK = 5_000


class Rows(NamedTuple):
    """A contiguous range of the rows to store.

    Attributes:
        first: number of the first.
        vectors: (n, dim) float32.
        labels: of each.
        x: (n,) metres.
        time_ns: (n,) int64.
    """

    first: int
    vectors: NDArray[np.float32]
    labels: list[str]
    x: NDArray[np.float64]
    time_ns: NDArray[np.int64]

    def memories(self, part: range) -> list[Memory]:
        """Rows of these numbers as memories; words are of 1,000."""
        return [
            Memory(
                time_ns=int(self.time_ns[row - self.first]),
                position=(float(self.x[row - self.first]), 0.0, 0.0),
                label=self.labels[row - self.first],
                caption=f"seen word{row % 997} on the way", embedding=self.vectors[row - self.first],
            )
            for row in part
        ]  # fmt: skip


def rows_of(first: int, end: int, dim: int, seed: int) -> Rows:
    """Return a range of rows; a row does not depend on the range it is made in.

    Vectors in 200 clusters; labels, places and times that have nothing to do with them.
    """
    centres = np.random.default_rng(seed).normal(size=(200, dim)).astype(np.float32)
    vectors, labels, places = [], [], []
    for block in range(first // BLOCK, -(-end // BLOCK)):
        random = np.random.default_rng([seed, block])
        drawn = centres[random.integers(0, 200, BLOCK)]
        drawn += 0.6 * random.standard_normal((BLOCK, dim), np.float32)
        numbers, along = random.integers(0, LABELS, BLOCK).tolist(), random.uniform(0, LENGTH_M, BLOCK)
        start = block * BLOCK
        kept = slice(max(first - start, 0), min(end - start, BLOCK))
        vectors.append(drawn[kept])
        places.append(along[kept])
        labels += [
            "rare" if (start + at) % RARE_EVERY == 7 else f"label{numbers[at]}" for at in range(BLOCK)[kept]
        ]
    times = np.arange(first, end, dtype=np.int64) * STEP_NS
    return Rows(first, np.concatenate(vectors), labels, np.concatenate(places), times)


class Asked(NamedTuple):
    """A filter of a question for what is like a vector.

    Attributes:
        label: that it has.
        x: metres from the first to the second.
        time_ns: from the first to the second.
    """

    label: str | None = None
    x: tuple[float, float] | None = None
    time_ns: tuple[int, int] | None = None

    def passes(self, rows: Rows) -> NDArray[np.int64]:
        """The rows that pass, counted from the first of the stretch."""
        kept = np.ones(len(rows.labels), np.bool_)
        if self.label is not None:
            kept &= np.array([label == self.label for label in rows.labels])
        if self.x is not None:
            kept &= (rows.x >= self.x[0]) & (rows.x <= self.x[1])
        if self.time_ns is not None:
            kept &= (rows.time_ns >= self.time_ns[0]) & (rows.time_ns <= self.time_ns[1])
        return np.flatnonzero(kept)


class Side(Protocol):
    """What is measured."""

    def add(self, rows: Rows, part: range) -> None:
        """Store some rows; returns when they are durable."""

    def settle(self) -> None:
        """Make the index over vectors."""

    def like(self, vector: NDArray[np.float32], asked: Asked, k: int) -> Sequence[int]:
        """The rows that are most like a vector among those that pass."""

    def bytes(self) -> int:
        """On the disk."""


class Store:
    """A store of either kind; the time of a memory is that of its row.

    Args:
        place: folder or address.
        dim: of the vectors.
        readonly: only ask.
    """

    def __init__(self, place: Path | str, dim: int, *, readonly: bool = False) -> None:
        config = None if readonly else StoreConfig(index_from=INDEX_FROM)
        self.store = MemoryStore.open(place, dim=dim, config=config, readonly=readonly)

    def add(self, rows: Rows, part: range) -> None:
        """See :class:`Side`."""
        self.store.add(rows.memories(part))

    def begin_month(self, number: int) -> None:
        """The month that follows so many from now on."""
        assert isinstance(self.store.database, Upkeep)
        now = self.store.database.parts()[0].begun_ns
        self.store.database.begin_part(now + number * 31 * 86_400 * STEP_NS)

    def settle(self) -> None:
        """See :class:`Side`."""
        if isinstance(self.store.database, Upkeep):
            self.store.database.make_indexes(INDEX_FROM // 10)
        else:
            self.store.settle()
        self.store.search(np.eye(1, self.store.dim, dtype=np.float32))

    def like(self, vector: NDArray[np.float32], asked: Asked, k: int) -> Sequence[int]:
        """See :class:`Side`."""
        return self._rows(Query(embedding=vector, k=k, **_conditions(asked)))

    def newest(self, asked: Asked, k: int) -> Sequence[int]:
        """The newest rows that pass."""
        return self._rows(Query(k=k, order="recency", **_conditions(asked)))

    def _rows(self, query: Query) -> list[int]:
        """Rows that answer a query; a restored memory has another id, but the time of its row."""
        return [hit.memory.time_ns // STEP_NS for hit in self.store.query(query)]

    def bytes(self) -> int:
        """See :class:`Side`."""
        return self.store.database.stats().file_bytes


def _conditions(asked: Asked) -> dict[str, Any]:
    """Return a filter as arguments of a query."""
    corners = None
    if asked.x is not None:
        left, right = asked.x
        corners = [(left, -1.0), (right, -1.0), (right, 1.0), (left, 1.0)]
    labels = None if asked.label is None else [asked.label]
    return {"polygon": corners, "between_ns": asked.time_ns, "labels": labels}


class Alone:
    """pgvector as its documentation shows it: a table, an index, a statement.

    Args:
        address: of a database.
        dim: of the vectors.
        iterative: walk the graph until enough rows pass.
    """

    def __init__(self, address: str, dim: int, *, iterative: bool) -> None:
        self._dim = dim
        self._connection: Any = psycopg.connect(address, autocommit=True)
        run = self._connection.execute
        run("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        if iterative:
            run("SET hnsw.iterative_scan = strict_order")
            return
        run("DROP TABLE IF EXISTS alone")
        run(
            "CREATE TABLE alone (id bigint PRIMARY KEY, label text, x float8, time_ns bigint,"
            f" half halfvec({dim}))"
        )
        run("CREATE INDEX ON alone (label)")
        run("CREATE INDEX ON alone (x)")
        run("CREATE INDEX ON alone (time_ns)")

    def add(self, rows: Rows, part: range) -> None:
        """See :class:`Side`; vectors in binary form."""
        sql = "COPY alone (id, label, x, time_ns, half) FROM STDIN (FORMAT BINARY)"
        with self._connection.cursor() as cursor, cursor.copy(sql) as copy:
            copy.write(COPY_HEAD)
            for row in part:
                at = row - rows.first
                label = rows.labels[at].encode()
                half = rows.vectors[at].astype(">f2").tobytes()
                copy.write(
                    b"\0\5\0\0\0\x08" + row.to_bytes(8, "big")
                    + len(label).to_bytes(4, "big") + label
                    + b"\0\0\0\x08" + np.array(rows.x[at], ">f8").tobytes()
                    + b"\0\0\0\x08" + int(rows.time_ns[at]).to_bytes(8, "big")
                    + (4 + len(half)).to_bytes(4, "big") + self._dim.to_bytes(2, "big") + b"\0\0" + half
                )  # fmt: skip
            copy.write(COPY_END)

    def settle(self) -> None:
        """See :class:`Side`."""
        self._connection.execute("CREATE INDEX ON alone USING hnsw (half halfvec_cosine_ops)")
        self._connection.execute("ANALYZE alone")

    def like(self, vector: NDArray[np.float32], asked: Asked, k: int) -> Sequence[int]:
        """See :class:`Side`."""
        parts: list[str] = []
        values: list[Any] = []
        if asked.label is not None:
            parts.append("label = %s")
            values.append(asked.label)
        for column, span in (("x", asked.x), ("time_ns", asked.time_ns)):
            if span is not None:
                parts.append(f"{column} BETWEEN %s AND %s")
                values += span
        where = f" WHERE {' AND '.join(parts)}" if parts else ""
        text = "[" + ",".join(map(repr, vector.tolist())) + "]"
        sql = f"SELECT id FROM alone{where} ORDER BY half <=> %s::halfvec({self._dim}) LIMIT %s"
        return [row for (row,) in self._connection.execute(sql, (*values, text, k))]

    def bytes(self) -> int:
        """See :class:`Side`."""
        found = self._connection.execute("SELECT pg_total_relation_size('alone')").fetchone()
        return int(found[0])

    def close(self) -> None:
        """Let go of the server."""
        self._connection.close()


@contextmanager
def store_at(place: Path | str, dim: int, *, readonly: bool = False) -> Iterator[Store]:
    """A store that is closed afterwards."""
    side = Store(place, dim, readonly=readonly)
    try:
        yield side
    finally:
        side.store.close()


def server_settings(buffers: str, maintenance: str | None = None, wal: str = "4GB") -> dict[str, str]:
    """Return settings of a server: memory, and every core for building graphs."""
    cores = os.cpu_count() or 2
    settings = {
        "shared_buffers": buffers,
        "maintenance_work_mem": maintenance or buffers,
        "max_parallel_maintenance_workers": str(max(2, cores - 1)),
        "max_parallel_workers": str(max(8, cores)),
        "max_worker_processes": str(max(8, cores + 4)),
        "max_wal_size": wal,
    }
    # Processes that make a graph share that much memory: containers often have 64 MB of this kind.
    shared = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    wanted = _bytes(settings["maintenance_work_mem"])
    if shared is None or shared.f_bavail * shared.f_frsize < 1.1 * wanted:
        settings["dynamic_shared_memory_type"] = "mmap"
    return settings


def _bytes(room: str) -> int:
    """``64MB`` or ``2GB`` as a number."""
    return int(room[:-2]) * {"MB": 2**20, "GB": 2**30}[room[-2:]]


@contextmanager
def server_at(folder: Path, settings: Mapping[str, str]) -> Iterator[str]:
    """A server of a folder that is stopped afterwards; its address."""
    folder.mkdir(exist_ok=True)
    try:
        yield local.start(folder, settings=settings)
    finally:
        local.stop(folder)
