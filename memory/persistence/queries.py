"""The reading half of a database of any engine; every answer is of one moment."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from memory.errors import StoreClosedError, StoreReadOnlyError, UnknownMemoryError
from memory.merging.motion import Motion
from memory.persistence import meta, visits, vocabulary
from memory.persistence.cache import MemoryCache
from memory.persistence.engine import engine_of
from memory.persistence.ids import check_ids, id_array
from memory.persistence.log import journal, observations
from memory.persistence.log.alignment import read_frames
from memory.persistence.log.journal import Changes, Counters, LogEntry
from memory.persistence.log.observations import ObservationCount
from memory.persistence.log.reception import PeerState, shared_ids
from memory.persistence.log.trust import RobotTrust
from memory.persistence.log.writer import Writer
from memory.persistence.reports import Stats
from memory.persistence.rows import DEFAULT_SLOT, Columns, Order, TextHits, Vectors
from memory.persistence.slots import read_slots
from memory.persistence.sql import read_maps
from memory.persistence.visits import VisitTimes, select_seen
from memory.query import Filter
from memory.types import Memory, check_integer

EVERYTHING = Filter()

Result = TypeVar("Result")


class Queries(ABC):
    """An open store of any engine: reads its tables, each call within a read transaction of its own.

    Attributes:
        folder: of the store, or of what this computer keeps for one on a server: caches that may be deleted.
        dim: length of the default vectors.
        readonly: whether it was opened for reading only.
        remarks: what opening found that its user should know.
        shared: whether other processes, on other computers too, write at the same time: settings are in the
            database alone.
        guarded: whether row-level security holds for this user: who is not the owner of a server's store.
    """

    folder: Path
    dim: int
    readonly: bool
    remarks: list[str]
    shared: bool
    guarded: bool
    _counters: Counters
    #: Who writes; ``None`` where the store was opened for reading only.
    _writer: Writer | None
    _pid: int
    _closed = False
    _trusts = RobotTrust()
    #: What was read lately; ``None`` where what may be seen changes without an operation, as on a server.
    _kept: MemoryCache | None = None

    def get(self, ids: Iterable[int], *, vectors: bool = True) -> list[Memory]:
        """The memories in the order of the ids; without their vectors where these are not wanted.

        Raises:
            UnknownMemoryError: one is not there.
        """
        known = check_ids(ids)
        with self._read() as connection:
            if self._kept is not None and not vectors:
                return self._kept.read(connection, known)
            found = engine_of(connection).read_images(connection, known, vectors=vectors)
            return [image.memory() for image in found]

    def present(self, ids: Sequence[int], *, vectors: bool = True) -> list[Memory]:
        """Those of the memories that are still there: another thread or process may just have removed one."""
        while True:
            try:
                return self.get(ids, vectors=vectors)
            except UnknownMemoryError:
                there = set(self.columns(ids).ids.tolist())
                ids = [id for id in ids if id in there]

    def ids(
        self, filter: Filter = EVERYTHING, *, order: Order = "id", limit: int | None = None
    ) -> NDArray[np.int64]:
        """Ids of the memories that match: rising, the newest or the oldest first (ties by id)."""
        with self._read() as connection:
            return engine_of(connection).select_ids(connection, filter, order=order, limit=limit)

    def ids_seen(self, filter: Filter, *, limit: int | None = None) -> tuple[NDArray[np.int64], int]:
        """What matches and was seen within ``between_ns``, see
        :func:`memory.persistence.visits.select_seen`.
        """
        with self._read() as connection:
            return select_seen(connection, filter, limit=limit)

    def count(self, filter: Filter = EVERYTHING) -> int:
        """How many match, exactly."""
        with self._read() as connection:
            return engine_of(connection).count_matches(connection, filter)

    def search_text(
        self,
        text: str,
        filter: Filter = EVERYTHING,
        *,
        limit: int = 100,
        any_word: bool = False,
        equal_too: bool = False,
    ) -> TextHits:
        """The memories whose label and caption fit the words best.

        Args:
            text: the words.
            filter: that they pass.
            limit: most of them.
            any_word: whether one of the words is enough.
            equal_too: also those that fit as well as the last, for an order by more than the words; a server
                orders them itself.
        """
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        with self._read() as connection:
            found = engine_of(connection).search_words(
                connection, text, filter, limit=limit, any_word=any_word
            )
        return found if equal_too else TextHits(found.ids[:limit], found.scores[:limit])

    def having(self, words: Sequence[str]) -> list[NDArray[np.int64]]:
        """For each word the rising ids of the memories that have it in any form."""
        with self._read() as connection:
            return [engine_of(connection).word_ids(connection, word) for word in words]

    def corrections(self, text: str) -> dict[str, str]:
        """For words that no memory has in any form, the word of the store that differs by a slip or two."""
        with self._read() as connection:
            return vocabulary.corrections(connection, text)

    def maps(self) -> list[str]:
        """The maps that memories are in."""
        with self._read() as connection:
            return read_maps(connection)

    def slots(self) -> dict[str, int]:
        """Length of the vectors by the name of their encoder."""
        with self._read() as connection:
            return {name: slot.dim for name, slot in read_slots(connection).items()}

    def vectors(self, ids: Iterable[int], slot: str = DEFAULT_SLOT) -> Vectors:
        """Vectors of those of the ids that have one, in their order; none for an unknown encoder."""
        known = check_ids(ids)
        with self._read() as connection:
            found = read_slots(connection).get(slot)
            if found is None:
                return Vectors.of([], [], 0)
            return engine_of(connection).read_vectors(connection, known, found)

    def scan_vectors(self, after_id: int = 0, limit: int = 65536, slot: str = DEFAULT_SLOT) -> Vectors:
        """The next vectors in the order of their ids, for building an index; empty at the end."""
        with self._read() as connection:
            found = read_slots(connection).get(slot)
            if found is None:
                return Vectors.of([], [], 0)
            return engine_of(connection).scan_vectors(connection, found, after_id=after_id, limit=limit)

    def scan_columns(self, after_id: int = 0, limit: int = 65536) -> Columns:
        """The next memories' columns in the order of their ids; empty at the end."""
        with self._read() as connection:
            return engine_of(connection).scan_columns(connection, after_id=after_id, limit=limit)

    def columns(self, ids: Iterable[int]) -> Columns:
        """Columns of those of the ids that are there, by rising id."""
        known = check_ids(ids)
        with self._read() as connection:
            return engine_of(connection).scan_columns(connection, ids=known)

    def poses(self, ids: Iterable[int]) -> NDArray[np.float64]:
        """(n, 4) float64 of the ids: x, y, z in metres and yaw in radians; NaN where there is no memory."""
        known = id_array(ids)
        with self._read() as connection:
            return engine_of(connection).read_poses(connection, known)

    @property
    def generation(self) -> int:
        """Number of the last operation; caches compare it."""
        with self._read() as connection:
            return int(connection.execute("SELECT coalesce(max(generation), 0) FROM log").fetchone()[0])

    @property
    def settings(self) -> str | None:
        """Text that :meth:`keep_settings` kept; ``None`` where there is none."""
        with self._read() as connection:
            found = meta.read(connection, meta.SETTINGS)
            return None if found is None else str(found)

    def identity(self, generation: int) -> str | None:
        """What tells the history of this store up to an operation from that of every other, and from what
        became of a copy that was put back; ``None`` where there is no such operation.

        Caches keep it, and are caches of this store only while it is the same.
        """
        check_integer("generation", generation)
        with self._read() as connection:
            return journal.read_identity(connection, generation)

    @property
    def store(self) -> str:
        """Random name of the store, which its copies have too."""
        with self._read() as connection:
            return str(meta.read(connection, meta.STORE))

    def changes(self, after_generation: int) -> Changes:
        """What differs from an earlier generation."""
        check_integer("after_generation", after_generation)
        with self._read() as connection:
            return journal.read_changes(connection, after_generation)

    def is_little(self, after_generation: int, most: int) -> bool:
        """Whether operations after a generation touched so few memories at most, and moved none."""
        with self._read() as connection:
            return journal.is_little(connection, after_generation, most)

    def log(
        self, after_generation: int = 0, *, limit: int | None = None, operation: str | None = None
    ) -> list[LogEntry]:
        """Operations after a generation, in order; all, or those of a name."""
        with self._read() as connection:
            return journal.read_entries(connection, after=after_generation, limit=limit, operation=operation)

    def history(self, id: int) -> list[LogEntry]:
        """Operations that touched a memory, there or gone."""
        check_integer("id", id)
        with self._read() as connection:
            return journal.read_history(connection, id)

    def follow(self, known: PeerState) -> None:
        """Bring what is known of another store up to date."""
        with self._read() as connection:
            known.follow(connection)

    def frames(self) -> dict[tuple[str, str], Motion]:
        """How the maps of robots lie in the store's, by robot and map; those that are not there lie as it."""
        with self._read() as connection:
            return read_frames(connection)

    def trusts(self) -> Mapping[str, float]:
        """How far robots are believed, from 0 to 1; 1 for those that are not there."""
        with self._read() as connection:
            self._trusts = self._trusts.followed(connection)
            return self._trusts.by_robot

    def shared_ids(self) -> NDArray[np.int64]:
        """(n,) int64, rising: what others saw, and this robot asked for; there still or gone."""
        with self._read() as connection:
            return shared_ids(connection)

    def visited_after(self, time_ns: int) -> VisitTimes:
        """Memories of several sights whose last is after a time; ``first_ns`` is when that was."""
        check_integer("time_ns", time_ns)
        with self._read() as connection:
            return visits.visited_after(connection, time_ns)

    def observations_of(self, id: int) -> ObservationCount:
        """Sights that were counted on a memory after it was stored, without those that were taken back."""
        check_integer("id", id)
        with self._read() as connection:
            return observations.counted_on(connection, id)

    def before(self, generation: int) -> list[Memory]:
        """What an operation removed or changed, as it was before, unless it was erased or trimmed since."""
        check_integer("generation", generation)
        with self._read() as connection:
            found = journal.read_before(connection, generation)
            return [image.memory() for _, _, image in found if image is not None]

    def stats(self) -> Stats:
        """Return sizes of everything; on a server those of files are what tables and indexes take there."""
        with self._read() as connection:
            counters = Counters()
            counters.read(connection)
            by_map, by_kind = (
                dict(
                    connection.execute(
                        f"SELECT {name}, count(*) FROM memory GROUP BY 1 ORDER BY 1"
                    ).fetchall()
                )
                for name in ("map_id", "kind")
            )
            counts = dict(connection.execute(engine_of(connection).vector_counts).fetchall())
            file_bytes, log_bytes, free_bytes = self._sizes(connection)
        return Stats(
            memories=sum(by_kind.values()),
            by_map=by_map,
            by_kind=by_kind,
            vectors={name: counts.get(slot.number, 0) for name, slot in counters.slots.items()},
            generation=counters.generation,
            next_id=counters.next_id,
            file_bytes=file_bytes,
            log_bytes=log_bytes,
            free_bytes=free_bytes,
        )

    @abstractmethod
    def _sizes(self, connection: Any) -> tuple[int, int, int]:
        """Return the bytes of the database, of its write-ahead log, and of free space within the database."""

    @abstractmethod
    def _read(self) -> AbstractContextManager[Any]:
        """A connection that sees one moment."""

    @property
    @abstractmethod
    def _name(self) -> str:
        """The store as messages name it."""

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreClosedError(f"{self._name} was closed")
        if os.getpid() != self._pid:
            raise StoreClosedError(
                f"{self._name} was opened by process {self._pid}: open it anew after a fork"
            )

    def _check_writer(self) -> Writer:
        self._check_usable()
        if self._writer is None:
            raise StoreReadOnlyError(f"{self._name} was opened for reading only")
        return self._writer

    @abstractmethod
    def _translated(self) -> AbstractContextManager[Any]:
        """Turns errors of the engine into those of :mod:`memory.errors`."""

    @abstractmethod
    def interrupt(self) -> None:
        """End what is read and written just now, in any thread; what was being written is rolled back.

        Those who wait for it get :class:`memory.errors.QueryInterruptedError`.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the store; a second call does nothing."""

    def __enter__(self) -> Self:
        """The database itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()

    def _write(self, work: Callable[[Any], Result]) -> Result:
        """Do something in a transaction that others may share; returns when it is on the disk."""
        writer = self._check_writer()
        with self._translated():
            return writer.run(work)
