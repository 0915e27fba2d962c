"""The indexes of a store's vectors: built when they are asked for, kept up to date, and written to files."""

from __future__ import annotations

import hashlib
import re
import threading
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

#: The encoder of :attr:`memory.types.Memory.embedding`.
DEFAULT = "default"
#: Vectors that are read from the store at a time when an index is built.
_PORTION = 65_536


class Indexes:
    """An index of two tiers for each encoder that was asked for.

    Args:
        database: the truth.
        index_from: vectors above which there is an index of the kind instead of comparing all.
        kind: name of one, see :mod:`memory.index.kinds`.
        tiers: which vectors stay out of it, and how they move there.

    Attributes:
        lock: held while an index changes; who searches one that :meth:`of` gave holds it too.
        by_encoder: those that there are.

    Raises:
        ValueError: no such kind, or none for stores.
    """

    def __init__(self, database: Database, *, index_from: int, kind: str, tiers: TierOptions) -> None:
        self.lock = threading.RLock()
        self.by_encoder: dict[str, TieredIndex] = {}
        self._database = database
        self._index_from = index_from
        self._kind = check_store_kind(kind)
        self._runs = False  # Whether what it needs is known to be here.
        self._tiers = tiers
        #: What the files hold: the operation that each index was up to date with, and what was measured.
        self._on_disk: dict[str, tuple[int, IndexCalibration | None]] = {}
        self._mover = Mover(self._move_on, tiers.budget)

    def of(self, encoder: str, count: int) -> TieredIndex:
        """The index of an encoder's vectors, built where there is none; :meth:`follow` comes before.

        Args:
            encoder: whose.
            count: vectors that there are, at most.

        Raises:
            IndexUnavailableError: the kind needs what is not here.
            ValueError: no memory has a vector of that encoder.
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
                f"no memory has a vector of encoder {encoder!r};"
                f" there are {', '.join(sorted(slots)) or 'none'}"
            )
        generation = self._database.generation
        dim = slots[encoder]
        index = self._empty(dim)
        after = 0

        def portion() -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
            nonlocal after
            vectors = self._database.scan_vectors(after, _PORTION, encoder)
            if not len(vectors.ids):
                return None
            after = int(vectors.ids[-1])
            return unit_rows(vectors.halves.astype(np.float32), dim), vectors.ids

        with without_limit():
            index.fill(count, portion)
            index.generation = generation
            self.by_encoder[encoder] = index
            self._catch_up(encoder, index)
        return index

    def describe(self, index: TieredIndex, aim: float, *, share: float = 1.0) -> str:
        """Return which index answers a single query, and what it does where such a share of rows counts."""
        kind = KINDS["flat"] if index.tiers[1] is None else self._kind
        return f"{kind.name}: {index.describe(aim, share=share)}"

    def follow(self, generation: int) -> None:
        """Catch up with the store, which is at this operation; the lock is held."""
        behind = [encoder for encoder, index in self.by_encoder.items() if index.generation != generation]
        slots = self._database.slots() if behind else {}
        for encoder in behind:
            if slots.get(encoder) == self.by_encoder[encoder].dim:
                self._catch_up(encoder, self.by_encoder[encoder])
            else:
                del self.by_encoder[encoder]  # No memory has such vectors any more, or they became others.

    def drop(self, folder: Path) -> None:
        """Forget the indexes, and remove their files: nothing of an erased vector stays."""
        with self.lock:
            self.by_encoder.clear()
            self._on_disk.clear()
            for path in folder.glob("*"):
                path.unlink(missing_ok=True)

    def stop(self) -> None:
        """End the thread that moves vectors; what waits stays in the recent tier, where it is found."""
        self._mover.stop()

    def settle(self) -> None:
        """Move everything to the tier where it belongs, now."""
        with self.lock, without_limit():
            self.follow(self._database.generation)
            for index in self.by_encoder.values():
                index.settle()

    def tiers(self) -> dict[str, Tier]:
        """Sizes of the tiers by encoder, of the indexes that have been used so far."""
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
        """Write the indexes, to be mapped at the next start; they are caches and may be deleted."""
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
                        other.unlink()  # Of the time when there were fewer.

    def load(self, folder: Path) -> None:
        """Map what :meth:`save` wrote; what does not fit the store any more is built again when needed."""
        with self.lock:
            for kind in (KINDS["flat"], self._kind):
                if kind.missing or kind.load is None:
                    continue  # Told when something is searched.
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
        """An index of two tiers without vectors."""
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
        """A step of the thread in the background; whether there is more to do."""
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
    """What a file of the index would hold."""
    long_term = index.tiers[1]
    return index.generation, None if long_term is None else long_term.calibration


def _file(folder: Path, encoder: str, kind: IndexKind) -> Path:
    """A name of an encoder may be anything; only a plain one is a file name on every system."""
    plain = re.fullmatch("[a-z0-9_-]{1,64}", encoder)
    stem = encoder if plain else "~" + hashlib.sha256(encoder.encode()).hexdigest()
    return folder / f"{stem}.{kind.suffix}"
