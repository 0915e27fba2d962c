"""Vector indexes of a store: built on demand, updated, and saved to files."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memory.config import TierOptions
from memory.index.base import TAIL_LIMIT
from memory.index.calibration import efforts_by_aim
from memory.index.effort import IndexCalibration
from memory.index.kinds import KINDS, IndexKind, check_store_kind
from memory.index.neighbours import unit_rows
from memory.index.tiered import TieredIndex
from memory.persistence.database import Database
from memory.persistence.deadline import without_limit
from memory.search.tiers import Mover, Tier
from sparse_core.common.console import LOG

#: The encoder of :attr:`memory.types.Memory.embedding`.
DEFAULT = "default"
#: Seconds between two reports of progress.
_REPORT_S = 10.0
#: Vectors that are read at once to build an index.
_PORTION = 65_536


class Indexes:
    """Two-tier indexes, one for each encoder that is searched.

    Args:
        database: database of the store.
        index_from: number of vectors above which an index of the kind is used.
        kind: name of a kind, see :mod:`memory.index.kinds`.
        tiers: which vectors stay outside the index, and how others move into it.

    Attributes:
        lock: hold it while searching an index of :meth:`of`.
        by_encoder: the indexes.

    Raises:
        ValueError: the kind is unknown or not usable for stores.
    """

    def __init__(self, database: Database, *, index_from: int, kind: str, tiers: TierOptions) -> None:
        self.lock = threading.RLock()
        self.by_encoder: dict[str, TieredIndex] = {}
        self._database = database
        self._index_from = index_from
        self._kind = check_store_kind(kind)
        self._runs = False  # True after the requirements of the kind were checked.
        self._tiers = tiers
        #: Operation and calibration of each index in its file.
        self._on_disk: dict[str, tuple[int, IndexCalibration | None]] = {}
        self._folder: Path | None = None
        self._mover = Mover(self._move_on, tiers.budget)

    def of(self, encoder: str, count: int) -> TieredIndex:
        """Return the index of an encoder, building it if needed; call :meth:`follow` first.

        Args:
            encoder: name of the encoder.
            count: maximum number of vectors.

        Raises:
            IndexUnavailableError: the kind needs a missing package or GPU.
            ValueError: no memory has a vector of the encoder.
        """
        if not self._runs:
            self._kind.require()
            self._runs = True
        known = self.by_encoder.get(encoder)
        if known is not None:
            if self._tiers.background and known.needs_calibration:
                self._mover.wake()
            return known
        slots = self._database.slots()
        if encoder not in slots:
            if encoder == DEFAULT:
                return self._empty(self._database.dim)
            raise ValueError(
                f"no memory has a vector of encoder {encoder!r}."
                f" Known encoders: {', '.join(sorted(slots)) or 'none'}"
            )
        generation = self._database.generation
        dim = slots[encoder]
        index = self._empty(dim)
        after = 0

        read, reported_s = 0, time.monotonic()

        def portion() -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
            nonlocal after, read, reported_s
            if time.monotonic() - reported_s > _REPORT_S:
                LOG.info("building the index of %r: %s of %s vectors", encoder, f"{read:,}", f"{count:,}")
                reported_s = time.monotonic()
            vectors = self._database.scan_vectors(after, _PORTION, encoder)
            if not len(vectors.ids):
                return None
            after = int(vectors.ids[-1])
            read += len(vectors.ids)
            return unit_rows(vectors.halves.astype(np.float32), dim), vectors.ids

        with without_limit():
            index.fill(count, portion)
            index.generation = generation
            self.by_encoder[encoder] = index
            self._catch_up(encoder, index)
            if index.tiers[1] is not None and self._folder is not None and not self._database.readonly:
                self.save(self._folder)  # Building takes minutes for millions, so a crash must not lose it.
        return index

    def describe(self, index: TieredIndex, aim: float, *, share: float = 1.0) -> str:
        """Return which index answers a single query, and how, if a share of the rows matches."""
        kind = KINDS["flat"] if index.tiers[1] is None else self._kind
        return f"{kind.name}: {index.describe(aim, share=share)}"

    def follow(self, generation: int) -> None:
        """Apply the changes up to an operation. The caller holds the lock."""
        behind = [encoder for encoder, index in self.by_encoder.items() if index.generation != generation]
        if not behind:
            return
        with without_limit():
            slots = self._database.slots()
            for encoder in behind:
                if slots.get(encoder) == self.by_encoder[encoder].dim:
                    self._catch_up(encoder, self.by_encoder[encoder])
                else:
                    del self.by_encoder[encoder]  # The encoder has no vectors any more, or a new length.

    def drop(self, folder: Path) -> None:
        """Drop the indexes and delete their files, so that no erased vector remains."""
        with self.lock:
            self.by_encoder.clear()
            self._on_disk.clear()
            for path in folder.glob("*"):
                path.unlink(missing_ok=True)

    def stop(self) -> None:
        """Stop the background thread. Waiting vectors stay in the recent tier."""
        self._mover.stop()

    def settle(self) -> None:
        """Move all vectors to their tiers now."""
        with self.lock, without_limit():
            self.follow(self._database.generation)
            for index in self.by_encoder.values():
                index.settle()

    def tiers(self) -> dict[str, Tier]:
        """Return the tier sizes by encoder, for indexes used so far."""
        with self.lock:
            found = {}
            for encoder, index in self.by_encoder.items():
                recent, long_term = index.tiers
                name = None if long_term is None else type(long_term).__name__
                older = 0 if long_term is None else len(long_term)
                found[encoder] = Tier(
                    len(recent), older, index.waiting, name, index.nbytes, efforts_by_aim(long_term)
                )
            return found

    def save(self, folder: Path) -> None:
        """Write the indexes to files, which are caches for the next start."""
        with self.lock:
            self.follow(self._database.generation)
            for encoder, index in self.by_encoder.items():
                if self._on_disk.get(encoder) == _version(index):
                    continue
                folder.mkdir(exist_ok=True)
                file = _file(folder, encoder, KINDS["flat"] if index.tiers[1] is None else self._kind)
                index.identity = self._database.identity(index.generation) or ""
                index.save(file)
                self._on_disk[encoder] = _version(index)
                for other in folder.glob(f"{file.stem}.*"):
                    if other != file:
                        other.unlink()  # Left from another kind of index.

    def load(self, folder: Path) -> None:
        """Map the files of :meth:`save`, and save there later. Files of another store are ignored."""
        self._folder = folder
        with self.lock:
            for kind in (KINDS["flat"], self._kind):
                if kind.missing or kind.load is None:
                    continue  # Reported when something is searched.
                for encoder, dim in self._database.slots().items():
                    try:
                        index = kind.load(_file(folder, encoder, kind))
                    except (OSError, ValueError):
                        continue
                    if index.identity != self._database.identity(index.generation) or index.dim != dim:
                        continue
                    tiered = self._empty(dim)
                    tiered.adopt(index)
                    tiered.generation = index.generation
                    self._on_disk[encoder] = _version(tiered)
                    self.by_encoder[encoder] = tiered

    def _empty(self, dim: int) -> TieredIndex:
        """Create an empty two-tier index."""
        make = self._kind.make
        assert make is not None
        self._kind.check_dim(dim)
        return TieredIndex(
            dim, make=lambda count: make(dim, count), dense=self._index_from, recent=self._tiers.recent
        )

    def _catch_up(self, encoder: str, index: TieredIndex) -> None:
        changes = self._database.changes(index.generation)
        index.remove(np.concatenate([changes.removed, changes.revised, changes.added]))
        present = np.sort(np.concatenate([changes.added, changes.revised]))
        for start in range(0, len(present), _PORTION):
            vectors = self._database.vectors(present[start : start + _PORTION].tolist(), encoder)
            if len(vectors.ids):
                index.add(unit_rows(vectors.halves.astype(np.float32), index.dim), vectors.ids)
        index.generation = changes.generation
        if self._tiers.background and (index.waiting > self._tiers.portion or index.needs_building):
            self._mover.wake()

    def _move_on(self, rest: Callable[[], None]) -> bool:
        """Do a step in the background thread; return True if there is more to do."""
        more = False
        for encoder, index in list(self.by_encoder.items()):
            if index.needs_building:
                built = index.build(rest)
                with self.lock:
                    if self.by_encoder.get(encoder) is index:
                        index.replace(built)
                more = True
            elif index.waiting:
                with self.lock:
                    if self.by_encoder.get(encoder) is index:
                        index.move(self._tiers.portion)
                more = True
            elif index.needs_calibration:
                more = index.calibrate(rest) or more
            rest()
            index.sort(more_than=TAIL_LIMIT)
        return more


def _version(index: TieredIndex) -> tuple[int, IndexCalibration | None]:
    """Return the version of an index in its file."""
    long_term = index.tiers[1]
    return index.generation, None if long_term is None else long_term.calibration


def _file(folder: Path, encoder: str, kind: IndexKind) -> Path:
    """Return the file of an encoder. Names that are not plain are encoded."""
    plain = re.fullmatch("[a-z0-9_-]{1,64}", encoder)
    stem = encoder if plain else "~" + hashlib.sha256(encoder.encode()).hexdigest()
    return folder / f"{stem}.{kind.suffix}"
