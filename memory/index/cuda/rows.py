"""Vectors and ids on a device, at positions in order of arrival."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from memory.index.neighbours import UNIT_TOLERANCE, Floats, Ids, Positions
from memory.index.rows import Register

_ROWS_AT_ONCE = 1 << 16


class DeviceRows(Register):
    """Arrays that grow by doubling; places after the last row are not alive. The host has the ids too.

    Attributes:
        vectors: (capacity, dim) float16.
        names: (capacity,) int64 ids.
        living_rows: (capacity,) bool, False for removed rows.
    """

    def __init__(self, dim: int, device: torch.device) -> None:
        super().__init__()
        self.dim = dim
        self.device = device
        self._allocate(0)

    def _allocate(self, capacity: int) -> None:
        self.vectors = torch.zeros((capacity, self.dim), dtype=torch.float16, device=self.device)
        self.names = torch.full((capacity,), -1, dtype=torch.int64, device=self.device)
        self.living_rows = torch.zeros(capacity, dtype=torch.bool, device=self.device)

    @property
    def capacity(self) -> int:
        """Number of rows that fit."""
        return len(self.vectors)

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        arrays = (self.vectors, self.names, self.living_rows)
        return sum(array.numel() * array.element_size() for array in arrays)

    def check(self, vectors: Tensor, ids: Ids) -> None:
        """Raise ``ValueError`` unless these are unit vectors under new ids."""
        if vectors.dim() != 2 or vectors.shape[1] != self.dim:
            raise ValueError(f"vectors must have shape (rows, {self.dim}), got {tuple(vectors.shape)}")
        if len(ids) != len(vectors):
            raise ValueError(f"ids must have one entry per vector, got {len(ids)} for {len(vectors)}")
        for first in range(0, len(vectors), _ROWS_AT_ONCE):
            squares = vectors[first : first + _ROWS_AT_ONCE].float().square().sum(1)
            wrong = ~((squares - 1.0).abs() <= UNIT_TOLERANCE)
            if bool(wrong.any()):
                row = int(wrong.to(torch.uint8).argmax())
                length = float(squares[row].sqrt())
                raise ValueError(
                    f"vectors must be finite unit vectors: row {first + row} has length {length:.4g}"
                )
        ordered = np.sort(ids)
        if (ordered[1:] == ordered[:-1]).any():
            raise ValueError(f"id {int(ordered[1:][ordered[1:] == ordered[:-1]][0])} is listed twice")
        self.check_new(ids)

    def add(self, vectors: Tensor, ids: Ids) -> None:
        """Append checked rows, ordered by rising id among themselves."""
        order = np.argsort(ids, kind="stable")
        self._reserve(self.count + len(ids))
        rising = bool((order[1:] > order[:-1]).all())
        places = None if rising else torch.from_numpy(order)
        for first in range(0, len(ids), _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            part = vectors[some] if places is None else vectors[places[some].to(vectors.device)]
            start = self.count + first
            self.vectors[start : start + len(part)] = part.to(self.device)
        start, stop = self.count, self.count + len(ids)
        keys = ids if rising else ids[order]
        self.names[start:stop] = torch.from_numpy(keys.copy()).to(self.device)
        self.living_rows[start:stop] = True
        self.register(keys)

    def _reserve(self, needed: int) -> None:
        if needed <= self.capacity:
            return
        old = (self.vectors, self.names, self.living_rows)
        self._allocate(max(needed, 2 * self.capacity, 64))
        count = self.count
        for new, array in zip((self.vectors, self.names, self.living_rows), old, strict=True):
            new[:count] = array[:count]

    def remove(self, ids: ArrayLike) -> Positions:
        """Mark rows as removed and return the rising positions of those that existed."""
        found = super().remove(ids)
        self.living_rows[torch.from_numpy(found).to(self.device)] = False
        return found

    def compact(self) -> DeviceRows:
        """Return a copy without the removed rows, ordered by rising id."""
        kept = np.flatnonzero(self.alive())
        kept = kept[np.argsort(self.ids()[kept], kind="stable")]
        rows = DeviceRows(self.dim, self.device)
        rows._allocate(max(len(kept), 64))
        places, count = torch.from_numpy(kept).to(self.device), len(kept)
        rows.vectors[:count], rows.names[:count] = self.vectors[places], self.names[places]
        rows.living_rows[:count] = True
        rows.register(self.ids()[kept])
        return rows

    def stored(self, start: int, stop: int, most: int | None) -> tuple[Ids, Floats]:
        """Return ids and float32 vectors of the first ``most`` living rows between two positions."""
        stop = min(stop, self.count)
        kept = start + np.flatnonzero(self.alive(stop)[start:])[:most]
        vectors = self.vectors[torch.from_numpy(kept).to(self.device)]
        return self.ids(stop)[kept], vectors.float().cpu().numpy()
