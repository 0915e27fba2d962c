"""Reading half of a database of any engine; every answer is of one moment."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from memory.areas import Area, find_area
from memory.errors import StoreClosedError, StoreReadOnlyError, UnknownMemoryError
from memory.merging.motion import Motion
from memory.persistence import meta, visits, vocabulary
from memory.persistence.cache import MemoryCache
from memory.persistence.engine import engine_of
from memory.persistence.ids import check_ids, id_array
from memory.persistence.log import journal, observations
from memory.persistence.log.alignment import read_frames
from memory.persistence.log.areas import NO_AREAS
from memory.persistence.log.journal import Changes, Counters, LogEntry
from memory.persistence.log.observations import ObservationCount
from memory.persistence.log.reception import PeerState, shared_ids
from memory.persistence.log.trust import FULL_TRUST
from memory.persistence.log.writer import Writer
from memory.persistence.reports import Stats
from memory.persistence.rows import DEFAULT_SLOT, Columns, Order, TextHits, Vectors
from memory.persistence.slots import read_slots
from memory.persistence.sql import read_maps
from memory.persistence.visits import VisitTimes, select_seen
from memory.query import EVERYTHING, Filter
from memory.types import Memory, check_integer

#: Memories read at a time.
PORTION = 5000

Result = TypeVar("Result")


class Queries(ABC):
    """Open store of any engine; each call reads within its own transaction.

    Attributes:
        folder: folder of the store, or this computer's deletable caches of a store on a server.
        dim: length of the default vectors.
        readonly: True if it was opened for reading only.
        remarks: findings of the opening for its user.
        shared: True if other processes may write at the same time; settings are then in the database alone.
        guarded: True if row-level security applies to this user, who is not the owner.
    """

    folder: Path
    dim: int
    readonly: bool
    remarks: list[str]
    shared: bool
    guarded: bool
    _counters: Counters
    #: Writer; ``None`` if the store is read-only.
    _writer: Writer | None
    _pid: int
    _closed = False
    _trusts = FULL_TRUST
    _areas = NO_AREAS
    # Cache; ``None`` on a server, where visible rows change without an operation.
    _cache: MemoryCache | None = None

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Let the reads of this thread within the context see one moment, without a time limit.

        It is for a few short reads that would each begin a transaction. Caches must not be newer than it, so
        enter it with their lock held. A store on a server ignores it.
        """
        yield

    def get(self, ids: Iterable[int], *, vectors: bool = True) -> list[Memory]:
        """Return the memories in order of the ids, optionally without vectors.

        Raises:
            UnknownMemoryError: an id does not exist.
        """
        known = check_ids(ids)
        with self._read() as connection:
            if self._cache is not None and not vectors:
                return self._cache.read(connection, known, self._latest(connection))
            found = engine_of(connection).read_images(connection, known, vectors=vectors)
            return [image.memory() for image in found]

    def present(self, ids: Sequence[int], *, vectors: bool = True) -> list[Memory]:
        """Return the existing ones of these memories; others may have been removed meanwhile."""
        while True:
            try:
                return self.get(ids, vectors=vectors)
            except UnknownMemoryError:
                there = set(self.columns(ids).ids.tolist())
                ids = [id for id in ids if id in there]

    def stream(self, ids: NDArray[np.int64], *, vectors: bool = True) -> Iterator[Memory]:
        """Yield the existing ones of these memories, which are read in portions."""
        for start in range(0, len(ids), PORTION):
            yield from self.present(ids[start : start + PORTION].tolist(), vectors=vectors)

    def ids(
        self, filter: Filter = EVERYTHING, *, order: Order = "id", limit: int | None = None
    ) -> NDArray[np.int64]:
        """Return the ids of matching memories: rising, newest first or oldest first (ties by id)."""
        filter = self.resolve(filter)
        with self._read() as connection:
            return engine_of(connection).select_ids(connection, filter, order=order, limit=limit)

    def ids_seen(self, filter: Filter, *, limit: int | None = None) -> tuple[NDArray[np.int64], int]:
        """Return the matches seen within ``between_ns``, see :func:`.visits.select_seen`."""
        filter = self.resolve(filter)
        with self._read() as connection:
            return select_seen(connection, filter, limit=limit)

    def count(self, filter: Filter = EVERYTHING) -> int:
        """Return the exact number of matches."""
        filter = self.resolve(filter)
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
        """Return the memories whose label and caption fit the words best.

        Args:
            any_word: True if one of the words is enough.
            equal_too: also return ties with the last result; a server breaks ties itself.
        """
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        filter = self.resolve(filter)
        with self._read() as connection:
            found = engine_of(connection).search_words(
                connection, text, filter, limit=limit, any_word=any_word
            )
        return found if equal_too else TextHits(found.ids[:limit], found.scores[:limit])

    def ids_by_word(self, words: Sequence[str]) -> list[NDArray[np.int64]]:
        """Return, for each word, the rising ids of the memories with any form of it."""
        with self._read() as connection:
            return [engine_of(connection).word_ids(connection, word) for word in words]

    def captions(self, ids: Sequence[int]) -> dict[int, str]:
        """Return the captions of the existing ones of these memories by id."""
        with self._read() as connection:
            return engine_of(connection).read_captions(connection, ids)

    def corrections(self, text: str) -> dict[str, str]:
        """Return, for words that no memory has, the most similar word of the store."""
        with self._read() as connection:
            return vocabulary.corrections(connection, text)

    def maps(self) -> list[str]:
        """Return the maps that have memories."""
        with self._read() as connection:
            return read_maps(connection)

    def slots(self) -> dict[str, int]:
        """Return the vector length by encoder name."""
        with self._read() as connection:
            return {name: slot.dim for name, slot in read_slots(connection).items()}

    def vectors(self, ids: Iterable[int], slot: str = DEFAULT_SLOT) -> Vectors:
        """Return the existing vectors of the ids, in their order; none for an unknown encoder."""
        known = check_ids(ids)
        with self._read() as connection:
            found = read_slots(connection).get(slot)
            if found is None:
                return Vectors.of([], [], 0)
            return engine_of(connection).read_vectors(connection, known, found)

    def scan_vectors(self, after_id: int = 0, limit: int = 65536, slot: str = DEFAULT_SLOT) -> Vectors:
        """Return the next vectors in order of their ids, to build an index; empty at the end."""
        with self._read() as connection:
            found = read_slots(connection).get(slot)
            if found is None:
                return Vectors.of([], [], 0)
            return engine_of(connection).scan_vectors(connection, found, after_id=after_id, limit=limit)

    def scan_columns(self, after_id: int = 0, limit: int = 65536) -> Columns:
        """Return the columns of the next memories in order of their ids; empty at the end."""
        with self._read() as connection:
            return engine_of(connection).scan_columns(connection, after_id=after_id, limit=limit)

    def columns(self, ids: Iterable[int]) -> Columns:
        """Return the columns of the existing ids, by rising id."""
        known = check_ids(ids)
        with self._read() as connection:
            return engine_of(connection).scan_columns(connection, ids=known)

    def poses(self, ids: Iterable[int]) -> NDArray[np.float64]:
        """Return (n, 4) float64 x, y, z in metres and yaw in radians; NaN for unknown ids."""
        known = id_array(ids)
        with self._read() as connection:
            return engine_of(connection).read_poses(connection, known)

    @property
    def generation(self) -> int:
        """Number of the last operation, which caches compare."""
        with self._read() as connection:
            return self._latest(connection)

    def _latest(self, connection: Any) -> int:
        """Return the last operation that a transaction sees."""
        return int(connection.execute("SELECT coalesce(max(generation), 0) FROM log").fetchone()[0])

    @property
    def settings(self) -> str | None:
        """Text of :meth:`keep_settings`, or ``None``."""
        with self._read() as connection:
            found = meta.read(connection, meta.SETTINGS)
            return None if found is None else str(found)

    def identity(self, generation: int) -> str | None:
        """Return the identity of the history up to an operation, or ``None`` if there is no such operation.

        It differs between stores, and between a store and a restored copy. Caches keep it, and are valid only
        while it is the same.
        """
        check_integer("generation", generation)
        with self._read() as connection:
            return journal.read_identity(connection, generation)

    @property
    def store(self) -> str:
        """Random name of the store, shared by its copies."""
        with self._read() as connection:
            return str(meta.read(connection, meta.STORE))

    def changes(self, after_generation: int) -> Changes:
        """Return the changes since an earlier generation."""
        check_integer("after_generation", after_generation)
        with self._read() as connection:
            return journal.read_changes(connection, after_generation)

    def is_little(self, after_generation: int, most: int) -> bool:
        """Return True if the operations since a generation changed few memories and moved none."""
        with self._read() as connection:
            unchanged = self._latest(connection) == after_generation
            return unchanged or journal.is_little(connection, after_generation, most)

    def log(
        self, after_generation: int = 0, *, limit: int | None = None, operation: str | None = None
    ) -> list[LogEntry]:
        """Return the operations after a generation in order, optionally only those of one name."""
        with self._read() as connection:
            return journal.read_entries(connection, after=after_generation, limit=limit, operation=operation)

    def history(self, id: int) -> list[LogEntry]:
        """Return the operations that changed a memory, which may be gone."""
        check_integer("id", id)
        with self._read() as connection:
            return journal.read_history(connection, id)

    def follow(self, known: PeerState) -> None:
        """Update what is known about another store."""
        with self._read() as connection:
            known.follow(connection)

    def frames(self) -> dict[tuple[str, str], Motion]:
        """Return the motions from robots' maps into the store's; missing ones are the identity."""
        with self._read() as connection:
            return read_frames(connection)

    def trusts(self) -> Mapping[str, float]:
        """Return the trust of robots from 0 to 1; missing ones have 1."""
        with self._read() as connection:
            self._trusts = self._trusts.refresh(connection)
            return self._trusts.value

    def areas(self) -> tuple[Area, ...]:
        """Return the areas by map and name; places that moved are where they are now."""
        with self._read() as connection:
            self._areas = self._areas.refresh(connection)
            found = self._areas.value
            ids = sorted({id for area in found for id in area.places or ()})
            table = engine_of(connection).read_poses(connection, id_array(ids)) if ids else np.zeros((0, 4))
        now = {id: (x, y) for id, (x, y) in zip(ids, table[:, :2].tolist(), strict=True) if x == x}
        return tuple(
            replace(area, places={id: now.get(id, point) for id, point in area.places.items()})
            if area.places
            else area
            for area in found
        )

    def resolve(self, filter: Filter) -> Filter:
        """Return a filter with the region and map of its area in place of the name.

        Raises:
            UnknownAreaError: no area has the name, or areas of several maps have it.
        """
        if filter.area is None:
            return filter
        area = find_area(self.areas(), filter.area, filter.map_id)
        return replace(filter, area=None, map_id=area.map_id, region=area.region)

    def shared_ids(self) -> NDArray[np.int64]:
        """Return (n,) int64 rising ids of what others saw and this robot pulled, existing or gone."""
        with self._read() as connection:
            return shared_ids(connection)

    def visited_after(self, time_ns: int) -> VisitTimes:
        """Return memories with several observations, the last after a time; ``first_ns`` is the last time."""
        check_integer("time_ns", time_ns)
        with self._read() as connection:
            return visits.visited_after(connection, time_ns)

    def observation_count(self, id: int) -> ObservationCount:
        """Return the observations counted on a memory after it was stored, without those undone."""
        check_integer("id", id)
        with self._read() as connection:
            return observations.count_of(connection, id)

    def before(self, generation: int) -> list[Memory]:
        """Return what an operation removed or changed, as it was before, unless erased or trimmed."""
        check_integer("generation", generation)
        with self._read() as connection:
            found = journal.read_before(connection, generation)
            return [image.memory() for _, _, image in found if image is not None]

    def stats(self) -> Stats:
        """Return all sizes; on a server, file sizes are those of tables and indexes."""
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
        """Return a connection that sees one moment."""

    @property
    @abstractmethod
    def _name(self) -> str:
        """Name of the store in messages."""

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreClosedError(f"{self._name} was closed. Open it again")
        if os.getpid() != self._pid:
            raise StoreClosedError(
                f"{self._name} was opened by process {self._pid}. Open it again after a fork"
            )

    def _check_writer(self) -> Writer:
        self._check_usable()
        if self._writer is None:
            raise StoreReadOnlyError(f"{self._name} was opened for reading only. Open it for writing")
        return self._writer

    @abstractmethod
    def _translate_errors(self) -> AbstractContextManager[Any]:
        """Turn errors of the engine into those of :mod:`memory.errors`."""

    @abstractmethod
    def interrupt(self) -> None:
        """Interrupt running reads and writes in all threads; a running write is rolled back.

        Their callers get :class:`memory.errors.QueryInterruptedError`.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the store; a second call does nothing."""

    def __enter__(self) -> Self:
        """Return the database."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()

    def _write(self, work: Callable[[Any], Result]) -> Result:
        """Run work in a transaction that others may share; return once it is durable."""
        writer = self._check_writer()
        with self._translate_errors():
            return writer.run(work)
