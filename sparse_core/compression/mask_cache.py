"""Cache of masks within a byte budget; evicts the least recently used."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from sparse_core.common.table import Report
from sparse_core.nm.packing.bits import pack_bits, unpack_bits
from sparse_core.nm.packing.positions import choices_of
from sparse_core.nm.pattern import NMPattern

#: Patterns whose masks :meth:`MaskCache.precompute` creates.
COMMON_PATTERNS = (NMPattern(1, 2), NMPattern(1, 4), NMPattern(2, 4), NMPattern(2, 8), NMPattern(4, 8))


class PatternId(NamedTuple):
    """Key of a mask in which every group of m columns keeps the same n positions.

    Attributes:
        n, m: the pattern.
        choice: number of the choice among C(m, n), in the order of
            :func:`sparse_core.nm.packing.positions.choices_of`; 0 keeps the first n.
        rows, columns: size of the mask.
    """

    n: int
    m: int
    choice: int
    rows: int
    columns: int


@dataclass(frozen=True)
class CacheStatistics(Report):
    """Statistics of a :class:`MaskCache`; ``str(statistics)`` is a table.

    Attributes:
        hits, misses: lookups that found a mask, and lookups that did not.
        evictions: masks dropped to make room.
        too_large: masks that were not stored because they exceed the whole budget.
        masks: masks stored now.
        nbytes: bytes of these masks.
        budget_bytes: the budget.
    """

    hits: int
    misses: int
    evictions: int
    too_large: int
    masks: int
    nbytes: int
    budget_bytes: int
    derived: ClassVar = ("hit_rate",)

    @property
    def hit_rate(self) -> float:
        """Share of lookups that found a mask; 0 before the first."""
        lookups = self.hits + self.misses
        return self.hits / lookups if lookups else 0.0


class _Entry(NamedTuple):
    """A mask; if ``packed``, one bit per entry."""

    stored: Tensor
    shape: tuple[int, ...]


class MaskCache:
    """Bool masks by id, for example a :class:`PatternId` or (layer, step). Thread-safe.

    The cache returns the stored tensors themselves: do not write to them.

    Args:
        budget_bytes: largest total size of the masks.
        packed: store one bit per entry, an eighth of the memory; each lookup unpacks.

    Raises:
        ValueError: a negative budget.
    """

    def __init__(self, budget_bytes: int = 64 << 20, *, packed: bool = False) -> None:
        if budget_bytes < 0:
            raise ValueError(f"budget_bytes must be at least 0, got {budget_bytes}")
        self.budget_bytes = budget_bytes
        self.packed = packed
        self._entries: OrderedDict[tuple[Hashable, str], _Entry] = OrderedDict()
        self._lock = threading.RLock()
        self._nbytes = self._hits = self._misses = self._evictions = self._too_large = 0

    def put(self, pattern_id: Hashable, mask: Tensor) -> bool:
        """Store a mask; replace one of the same id and device.

        Returns:
            False if the mask exceeds the whole budget and was not stored.

        Raises:
            TypeError: not a bool tensor.
        """
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            found = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
            raise TypeError(f"a mask is a bool tensor, got {found}")
        stored = pack_bits(mask.reshape(1, -1).to(torch.uint8), 1) if self.packed else mask.detach().clone()
        entry = _Entry(stored, tuple(mask.shape))
        key = (pattern_id, str(mask.device))
        with self._lock:
            self._drop(key)
            if stored.nbytes > self.budget_bytes:
                self._too_large += 1
                return False
            while self._nbytes + stored.nbytes > self.budget_bytes:
                self._drop(next(iter(self._entries)))
                self._evictions += 1
            self._entries[key] = entry
            self._nbytes += stored.nbytes
            return True

    def get(self, pattern_id: Hashable, device: torch.device | str = "cpu") -> Tensor | None:
        """Return the mask of an id on a device, or ``None``; marks it as recently used."""
        key = (pattern_id, str(_with_index(device)))
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
                return None
            self._entries.move_to_end(key)
            self._hits += 1
        if not self.packed:
            return entry.stored
        return unpack_bits(entry.stored, math.prod(entry.shape), 1).bool().reshape(entry.shape)

    def get_or_make(
        self, pattern_id: Hashable, make: Callable[[], Tensor], device: torch.device | str = "cpu"
    ) -> Tensor:
        """Return the mask of an id; create and store it if it is missing.

        Raises:
            ValueError: ``make`` returned a mask on another device.
        """
        found = self.get(pattern_id, device)
        if found is not None:
            return found
        mask = make()
        if mask.device != _with_index(device):
            raise ValueError(
                f"the mask made for {pattern_id!r} is on {mask.device}"
                f" but {device} was requested: create it there"
            )
        self.put(pattern_id, mask)
        return mask

    def repeated(
        self, pattern: NMPattern, shape: tuple[int, int], choice: int = 0, device: torch.device | str = "cpu"
    ) -> Tensor:
        """Return :func:`repeated_mask` from the cache."""
        key = PatternId(pattern.n, pattern.m, choice, *shape)
        return self.get_or_make(key, lambda: repeated_mask(pattern, shape, choice, device=device), device)

    def precompute(self, shape: tuple[int, int], device: torch.device | str = "cpu") -> int:
        """Store all repeated masks for 1:2, 1:4, 2:4, 2:8 and 4:8, as far as the budget allows.

        Patterns that do not divide the columns are skipped; stored masks stay.

        Returns:
            The number of stored masks of this shape.
        """
        ready = 0
        size = shape[0] * shape[1]
        stored = -(-size // 8) if self.packed else size
        for pattern in COMMON_PATTERNS:
            if shape[1] % pattern.m:
                continue
            for choice in range(len(choices_of(pattern))):
                key = (PatternId(pattern.n, pattern.m, choice, *shape), str(_with_index(device)))
                with self._lock:
                    there = key in self._entries
                    if not there and self._nbytes + stored > self.budget_bytes:
                        return ready
                if not there:
                    self.put(key[0], repeated_mask(pattern, shape, choice, device=device))
                ready += 1
        return ready

    def drop(self, pattern_id: Hashable) -> None:
        """Remove the masks of an id on every device."""
        with self._lock:
            for key in [key for key in self._entries if key[0] == pattern_id]:
                self._drop(key)

    @property
    def statistics(self) -> CacheStatistics:
        """Return the counters since the cache was created, and its current content."""
        with self._lock:
            return CacheStatistics(
                self._hits,
                self._misses,
                self._evictions,
                self._too_large,
                len(self._entries),
                self._nbytes,
                self.budget_bytes,
            )

    def __contains__(self, pattern_id: Hashable) -> bool:
        with self._lock:
            return any(key[0] == pattern_id for key in self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _drop(self, key: tuple[Hashable, str]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._nbytes -= entry.stored.nbytes


def _with_index(device: torch.device | str) -> torch.device:
    """Return the device with its index, as tensors name it: "cuda" becomes for example "cuda:0"."""
    found = torch.device(device)
    return torch.empty(0, device=found).device if found.type == "cuda" else found


def repeated_mask(
    pattern: NMPattern, shape: tuple[int, int], choice: int = 0, *, device: torch.device | str = "cpu"
) -> Tensor:
    """Return a (rows, columns) mask in which every group of m columns keeps the same n positions.

    Args:
        pattern: n and m; C(m, n) at most 65,536.
        shape: rows and columns.
        choice: number of the choice, see :class:`PatternId`.
        device: device of the mask.

    Raises:
        ValueError: m does not divide the columns, or ``choice`` is out of range.
    """
    rows, columns = shape
    choices = choices_of(pattern)
    if columns % pattern.m:
        raise ValueError(
            f"{columns} columns are not divisible by m={pattern.m}:"
            f" take {-(-columns // pattern.m) * pattern.m}"
        )
    if not 0 <= choice < len(choices):
        raise ValueError(f"{pattern} has choices 0 to {len(choices) - 1}, got {choice}")
    group = torch.zeros(pattern.m, dtype=torch.bool)
    group[choices[choice].long()] = True
    return group.repeat(rows, columns // pattern.m).to(device)
