"""The store: durable memories, with search and maintenance."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from memory.areas import PLACE_RADIUS_M, Area, box_corners, check_name, check_places, find_area, polygon_area
from memory.config import FILE_NAME as CONFIG_NAME
from memory.config import StoreConfig, is_empty
from memory.index.kinds import KINDS
from memory.merging.align_options import AlignOptions
from memory.merging.motion import Motion
from memory.observe.observer import Kept, Observed, Observer
from memory.persistence.database import Database
from memory.persistence.log.operations import TrimReport
from memory.persistence.opening import load_settings, open_database
from memory.persistence.reports import CheckReport
from memory.search.reader import INDEX_FOLDER, StoreReader
from memory.types import Memory, State
from memory.upkeep import map_alignment as aligning
from memory.upkeep.care import Care, Consolidated
from memory.upkeep.map_alignment import AlignmentResult
from memory.wording import stem

__all__ = ["Consolidated", "Kept", "MemoryStore", "Observed", "TrimReport"]


class MemoryStore(StoreReader):
    """Store of memories in a folder or a PostgreSQL database; open it with :meth:`open`.

    Changes are on disk when a method returns. One process may write to a folder and any number may read. All
    methods are thread-safe.

    Attributes:
        folder: store folder.
        config: settings.
        dim: length of the default vectors.
    """

    def __init__(self, database: Database, config: StoreConfig) -> None:
        """Used by :meth:`open`."""
        super().__init__(database, config)
        self._observer = Observer(database, self._retriever, config)
        self._care = Care(database, self._retriever, self._observer, config, self.folder / INDEX_FOLDER)
        self._closed = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        dim: int | None = None,
        readonly: bool = False,
        create: bool = True,
        config: StoreConfig | None = None,
    ) -> MemoryStore:
        """Open a store, or create one.

        Args:
            path: folder, or the address of a PostgreSQL database with pgvector,
                ``"postgresql://user:password@host:port/database"``. Any number of processes may write to a
                database.
            dim: vector length; required for a new store, checked for an existing one.
            readonly: open without changing anything; works while another process writes.
            create: create the store if there is none.
            config: settings to use and save. By default those of the folder or database.

        Raises:
            StoreError: see its subclasses in :mod:`memory.errors`.
            DimensionError: the store has vectors of another length.
            IndexUnavailableError: the index in ``config`` needs a missing package or GPU.
            ValueError: the settings of the store are invalid.
        """
        if config is not None:
            # Check the index first, so that a missing package fails before a store is created.
            KINDS[config.index].require()
        database = open_database(path, dim=dim, readonly=readonly, create=create)
        try:
            given = config is not None
            if config is None:
                config = load_settings(database)
            if not readonly:
                _save_config(database, config, given)
            return cls(database, config)
        except BaseException:
            database.close()
            raise

    def close(self) -> None:
        """Save the indexes for the next start and close the store.

        Skipping ``close()`` loses only recent access counts.

        Raises:
            StoreError, OSError: the caches could not be written, for example on a full disk. The store is
                closed anyway.
        """
        if self._closed:
            return
        self._closed = True
        self._retriever.indexes.stop()
        self._accesses.wait()
        try:
            if not self._database.readonly:
                self._database.flush()
                self._accesses.write()
                self._retriever.indexes.save(self.folder / INDEX_FOLDER)
                self._observer.save()
        finally:
            self._database.close()

    def __enter__(self) -> MemoryStore:
        """Return the store."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the store."""
        self.close()

    def add(self, memories: Sequence[Memory]) -> list[int]:
        """Store all memories or none, and return their ids once they are on disk.

        Threads that add at the same time share a commit.

        Raises:
            ValueError, TypeError, DimensionError: a memory is invalid; nothing was stored.
            StoreFullError: the disk is full; nothing was stored.
        """
        return self._database.add(memories)

    def observe(self, memories: Sequence[Memory]) -> list[Kept]:
        """Score observations and store only the important ones.

        Importance (:mod:`memory.observe.importance`) depends on the similarity to the nearest memory of the
        map, or without a vector on the distance to the nearest memory of the same kind and label. Each
        observation is compared with the kept ones before it. The reservoir keeps the best share of each place
        and time window, plus marked and unique observations. A memory that a better one replaces is
        forgotten, which can be undone.

        An observation that is not kept is counted on the memory that represents it (``Kept.like``): its
        count, visits, first and last time are updated, ``time_ns`` is not. If the batch stores a memory,
        these counts are on disk on return. Otherwise they wait for the next commit, :meth:`flush` or
        :meth:`close`, at most ten minutes by the robot's clock. A killed process loses waiting counts, but no
        memory.

        Returns:
            The decision for each observation, in order.

        Raises:
            ValueError, TypeError, DimensionError: a memory is invalid or has an id; nothing was stored.
            StoreFullError: the disk is full; nothing was stored.
        """
        return self.observe_logged(memories).kept

    def observe_logged(
        self, memories: Sequence[Memory], *, detail: Mapping[str, Any] | None = None
    ) -> Observed:
        """Score observations like :meth:`observe`, log details and return a full report.

        Args:
            memories: the observations.
            detail: log entries; the operation is then logged even without changes. They are permanent, so
                include nothing that may have to be erased.
        """
        return self._observer.observe(memories, detail)

    def flush(self) -> None:
        """Write waiting observation counts to disk."""
        self._database.flush()

    def forget(self, ids: Iterable[int], *, secure: bool = False, reason: str = "asked for") -> int:
        """Forget memories; return the operation number for :meth:`undo`.

        Args:
            ids: ids of the memories.
            secure: erase them from all files, including indexes. This cannot be undone.
            reason: shown by :meth:`explain`. It is permanent, so include nothing that may have to be erased.

        Raises:
            UnknownMemoryError: an id does not exist; nothing was forgotten.
            EraseError: the memories were forgotten, but their old bytes were not overwritten, because a
                reader was open or the disk was too full. This is retried when the store is next opened for
                writing.
        """
        try:
            return self._care.forget(ids, secure=secure, reason=reason)
        finally:
            if secure:
                self._attention.forget()
                stem.cache_clear()

    def mark(
        self, ids: Iterable[int], state: State = "gone", *, at_ns: int | None = None, why: str = ""
    ) -> int:
        """Set the state of objects; return the operation number for :meth:`undo`.

        Gone and moved objects stay searchable as history, and answers report their state. :meth:`observe`
        treats the next observation at their place as new. :mod:`memory.merging` describes how
        :meth:`consolidate` merges the two.

        Args:
            ids: ids of the memories; nothing is logged if there are none.
            state: ``"present"``, ``"gone"``, ``"moved"`` or ``"unknown"``.
            at_ns: time of the state by the robot's clock. By default the time of the newest memory, or the
                last observation of these memories if later.
            why: shown by :meth:`explain`. It is permanent, so include nothing that may have to be erased.

        Returns:
            The operation number; that of the latest operation if there are no ids.

        Raises:
            UnknownMemoryError: an id does not exist; nothing was changed.
            ValueError: unknown state, or an object was seen after ``at_ns``.
        """
        return self._care.mark(ids, state, at_ns=at_ns, why=why, newest_ns=self.newest_ns)

    def trim(self, *, keep_ns: int | None = None, keep_operations: int | None = None) -> TrimReport:
        """Drop the undo data of old operations; the log keeps what they did and when.

        Operations stay undoable if they are younger than ``keep_ns``, among the last ``keep_operations``, or
        of this session. The file does not shrink, but its space is reused.

        Args:
            keep_ns: maximum age in nanoseconds, by the system clock; ``None`` keeps nothing by age.
            keep_operations: number of operations to keep; ``None`` keeps nothing by number.

        Raises:
            ValueError: neither is given, or one is negative.
        """
        return self._care.trim(keep_ns=keep_ns, keep_operations=keep_operations)

    def consolidate(
        self, *, now_ns: int | None = None, progress: Callable[[str, int, int], None] | None = None
    ) -> Consolidated:
        """Merge duplicate memories and forget those over the capacity of a map.

        Each merge, and the forgetting, is an operation that can be undone. Afterwards the log is trimmed
        according to ``StoreConfig.undo_keep_s`` and ``undo_keep_operations`` (:meth:`trim`), and a server is
        settled (:meth:`settle`).

        Args:
            now_ns: time at which the age of memories is judged; by default the system time.
            progress: called with the step, the number done and the total.
        """
        now = time.time_ns() if now_ns is None else now_ns
        done = self._care.consolidate(now, self._accesses.write, progress)
        if self._database.shared:
            self._retriever.settle()
        return done

    def undo(self, generation: int) -> int:
        """Undo an operation; return the number of the undo operation.

        Raises:
            UndoError: the operation is unknown, undone before, changed by later operations, or erased.
        """
        return self._database.undo(generation)

    def repose(
        self,
        ids: Iterable[int],
        positions: ArrayLike,
        yaws: ArrayLike,
        *,
        covariances: ArrayLike | None = None,
        reason: str = "",
    ) -> int:
        """Set new poses, for example after a loop closure; return the operation number.

        Args:
            ids: n ids.
            positions: (n, 3) metres in the map.
            yaws: (n,) radians.
            covariances: (n, 3, 3) square metres; ``None`` keeps the old ones.
            reason: shown by :meth:`explain`.

        Raises:
            ValueError: shapes differ, a number is not finite, or an id is listed twice.
            UnknownMemoryError: an id does not exist; nothing was changed.
        """
        detail = {"reason": reason} if reason else None
        return self._database.repose(ids, positions, yaws, covariances=covariances, detail=detail)

    def align(
        self,
        robot: str,
        *,
        map_id: str | None = None,
        options: AlignOptions | None = None,
        frame: Motion | None = None,
    ) -> AlignmentResult:
        """Align a robot's map and clock with those of the store, using objects that both saw.

        Memories that only this robot saw are moved, and later ones are moved on arrival. If moving objects
        show that its clock is wrong, their times are corrected as well. :meth:`undo` reverts it until new
        memories arrive; ``frame=Motion()`` reverts it at any time.

        Args:
            robot: name of the robot, see :mod:`memory.sync`.
            map_id: map; optional if the robot saw only one.
            options: thresholds of a valid alignment.
            frame: known motion from the robot's map and clock into the store's, used instead of an estimate.

        Raises:
            AlignmentError: too few common objects, or an ambiguous result, also because a wrong clock would
                look like a shift; nothing was changed.
            ValueError: the robot saw nothing in the map, or ``map_id`` is needed.
        """
        return aligning.align(self._database, robot, map_id, options, frame)

    def trust(self, robot: str, trust: float, *, why: str = "") -> int:
        """Set how much a robot is trusted; return the operation number for :meth:`undo`.

        If robots disagree, :meth:`consolidate` and answers use robots with at least half the trust of the
        most trusted one. Trust also weights means (:func:`memory.merging.fusion.fuse`). Memories of a robot
        with trust 0 are not merged. Earlier merges do not change.

        Args:
            robot: name of the robot, see :mod:`memory.sync`.
            trust: from 0 to 1; the default of a robot is 1.
            why: shown by :meth:`log`. It is permanent, so include nothing that may have to be erased.

        Raises:
            ValueError: the number is out of range, or the name is empty.
            StoreReadOnlyError: on a server, the user is not the owner of the store.
        """
        return self._database.trust(robot, trust, detail={"reason": why} if why else None)

    def set_area(
        self,
        name: str,
        *,
        polygon: Sequence[Sequence[float]] | None = None,
        box: Sequence[float] | None = None,
        places: Iterable[int] | None = None,
        radius_m: float = PLACE_RADIUS_M,
        map_id: str | None = None,
    ) -> int:
        """Name a part of a map; return the operation number for :meth:`undo`.

        Queries, filters and questions then accept the name: ``Query(area="kitchen")``. An area of the same
        name in the map is replaced. Names that differ only in case are the same.

        Args:
            name: such as ``"kitchen"`` or ``"bay 3"``.
            polygon: corners (x, y) in metres.
            box: x0, y0, x1, y1 in metres.
            places: ids of memories; the area is what lies within ``radius_m`` of one of them, and follows
                them when they move. The log keeps their present positions for when they are forgotten.
            radius_m: radius around each place in metres.
            map_id: map; optional if the store has only one, or with ``places``.

        Raises:
            ValueError: not exactly one shape is given, it is invalid, or the map is missing.
            UnknownMemoryError: a place does not exist.
            StoreReadOnlyError: on a server, the user is not the owner of the store.
        """
        given = [shape for shape in (polygon, box, places) if shape is not None]
        if len(given) != 1:
            raise ValueError("an area needs one shape: give polygon, box or places")
        if places is not None:
            known, radius = check_places(places, radius_m)
            memories = self.get(known)
            points = {id: memory.place[:2] for id, memory in zip(known, memories, strict=True)}
            maps = sorted({memory.map_id for memory in memories})
            if len(maps) > 1 or map_id not in (None, maps[0]):
                raise ValueError(f"the places are in the maps {', '.join(maps)}. Give places of one map")
            area = Area(check_name(name), maps[0], places=points, radius_m=radius)
        else:
            corners = polygon if polygon is not None else box_corners(box or ())
            area = polygon_area(name, self._only_map(map_id), corners)
        return self._database.set_area(area)

    def remove_area(self, name: str, *, map_id: str | None = None) -> int:
        """Remove the name of an area, not its memories; return the operation number for :meth:`undo`.

        Raises:
            UnknownAreaError: no area has the name, or areas of several maps have it and ``map_id`` is None.
        """
        return self._database.remove_area(find_area(self.areas(), name, map_id))

    def _only_map(self, map_id: str | None) -> str:
        if map_id is not None:
            return map_id
        maps = self.maps()
        if len(maps) != 1:
            known = f"the maps are {', '.join(maps)}" if maps else "the store has no map yet"
            raise ValueError(f"give map_id; {known}")
        return maps[0]

    def check(self, *, repair: bool = False) -> CheckReport:
        """Check rows, indexes, log and settings for damage; with ``repair``, repair it.

        A repair rebuilds indexes. If rows are damaged, it copies the intact rows into a new database and
        keeps the damaged file. ``lost`` lists what was not recovered, and another file holds the remains of
        damaged memories (``docs/memory-format.md``). If the store cannot be opened, use ``recall check
        --repair``.
        """
        return self._database.check(repair)

    def backup(
        self, folder: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None
    ) -> Path:
        """Copy the store with its settings, also while it is in use; return the path of the copied database.

        An interrupted backup leaves no store; the next backup into the folder replaces it. Caches are not
        copied, so the copy rebuilds its indexes, and :meth:`observe` may keep similar observations again.

        Args:
            folder: target folder; created if missing.
            progress: called with the number of copied pages and their total.

        Raises:
            FileExistsError: the folder already holds a store.
        """
        return self._database.backup(folder, progress, beside={CONFIG_NAME: self.config.to_text().encode()})

    def settle(self) -> None:
        """Move vectors to their tiers now instead of in the background.

        On a server, create the tables of the month if needed, and an HNSW index for each encoder with more
        than ``StoreConfig.index_from`` vectors in a month. Others can read and write meanwhile. Only this
        call and :meth:`consolidate` do so, and only the owner of the tables may.
        """
        self._retriever.settle()


def _save_config(database: Database, config: StoreConfig, given: bool) -> None:
    """Save the settings in the database, and in the file if they were given or it is missing."""
    if database.shared:
        if given and config.to_text() != database.settings:
            database.keep_settings(config.to_text())
        return
    file = database.folder / CONFIG_NAME
    usual = database.settings is None and not file.exists() and not given
    if not usual and config.to_text() != database.settings:
        database.keep_settings(config.to_text())
    if given or not (usual or file.exists()) or is_empty(database.folder):
        config.save(database.folder)
