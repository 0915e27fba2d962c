"""Vectors and ids on a device, at positions that rise with the id."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from memory.index.neighbours import UNIT_TOLERANCE, Ids, Positions

_ROWS_AT_ONCE = 1 << 16


class DeviceRows:
    """Arrays that grow by doubling; places behind the last row are not alive.

    Args:
        dim: of a vector.
        device: where the arrays are.

    Attributes:
        count: rows, removed ones included.
        dead: removed ones.
        vectors: (capacity, dim) float16.
        ids: (capacity,) int64.
        alive: (capacity,) bool.
        host_ids, host_alive: (count,) the same for the host.
    """

    def __init__(self, dim: int, device: torch.device) -> None:
        self.dim = dim
        self.device = device
        self._allocate(0)
        self.host_ids: Ids = np.empty(0, np.int64)
        self.host_alive: NDArray[np.bool_] = np.empty(0, np.bool_)
        self.count = self.dead = 0

    def _allocate(self, capacity: int) -> None:
        self.vectors = torch.zeros((capacity, self.dim), dtype=torch.float16, device=self.device)
        self.ids = torch.full((capacity,), -1, dtype=torch.int64, device=self.device)
        self.alive = torch.zeros(capacity, dtype=torch.bool, device=self.device)

    def __len__(self) -> int:
        return self.count - self.dead

    @property
    def capacity(self) -> int:
        """Rows that there is room for."""
        return len(self.vectors)

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        arrays = (self.vectors, self.ids, self.alive)
        return sum(array.numel() * array.element_size() for array in arrays)

    def check(self, vectors: Tensor, ids: Ids) -> None:
        """Raise ``ValueError`` unless these are unit vectors under new ids."""
        if vectors.dim() != 2 or vectors.shape[1] != self.dim:
            raise ValueError(f"vectors must have shape (rows, {self.dim}), got {tuple(vectors.shape)}")
        if len(ids) != len(vectors):
            raise ValueError(f"ids must have one entry a vector, got {len(ids)} for {len(vectors)}")
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
            raise ValueError(f"id {int(ordered[1:][ordered[1:] == ordered[:-1]][0])} is given twice")
        known = self.find(ids) >= 0
        if known.any():
            raise ValueError(f"id {int(ids[known][0])} is there already: remove it first")

    def add(self, vectors: Tensor, ids: Ids) -> bool:
        """Append checked rows; whether rows that were there have moved.

        Ids that do not rise beyond those that are there make all rows move to their order.
        """
        order = np.argsort(ids, kind="stable")
        moved = self.count > 0 and len(ids) > 0 and int(ids[order[0]]) <= int(self.host_ids[-1])
        self._reserve(self.count + len(ids))
        rising = bool((order[1:] > order[:-1]).all())
        places = None if rising else torch.from_numpy(order).to(self.device)
        for first in range(0, len(ids), _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            part = vectors[some] if places is None else vectors[places[some].to(vectors.device)]
            start = self.count + first
            self.vectors[start : start + len(part)] = part.to(self.device)
        stop = self.count + len(ids)
        keys = ids if rising else ids[order]
        self.ids[self.count : stop] = torch.from_numpy(keys.copy()).to(self.device)
        self.alive[self.count : stop] = True
        self.host_ids = np.concatenate([self.host_ids, keys])
        self.host_alive = np.concatenate([self.host_alive, np.ones(len(keys), np.bool_)])
        self.count = stop
        if moved:
            self.compact()
        return moved

    def _reserve(self, needed: int) -> None:
        if needed <= self.capacity:
            return
        old = (self.vectors, self.ids, self.alive)
        self._allocate(max(needed, 2 * self.capacity, 64))
        count = self.count
        self.vectors[:count], self.ids[:count], self.alive[:count] = (array[:count] for array in old)

    def remove(self, ids: Ids) -> Positions:
        """Mark rows as gone; the positions of those that were there."""
        found = np.unique(self.find(ids))
        found = found[found >= 0]
        self.host_alive[found] = False
        self.alive[torch.from_numpy(found).to(self.device)] = False
        self.dead += len(found)
        return found

    def compact(self) -> None:
        """Leave out removed rows and order the others by id."""
        kept = np.flatnonzero(self.host_alive)
        kept = kept[np.argsort(self.host_ids[kept], kind="stable")]
        places = torch.from_numpy(kept).to(self.device)
        vectors = self.vectors
        self._allocate(max(len(kept), 64))
        count = len(kept)
        self.vectors[:count] = vectors[places]
        self.host_ids, self.host_alive = self.host_ids[kept], np.ones(count, np.bool_)
        self.ids[:count] = torch.from_numpy(self.host_ids).to(self.device)
        self.alive[:count] = True
        self.count, self.dead = count, 0

    def find(self, ids: Ids) -> Positions:
        """(ids,) positions of living rows, -1 where there is none."""
        if self.count == 0:
            return np.full(len(ids), -1, np.int64)
        found = np.minimum(np.searchsorted(self.host_ids, ids), self.count - 1)
        found[(self.host_ids[found] != ids) | ~self.host_alive[found]] = -1
        return found

    def among(self, ids: Ids) -> Positions:
        """Rising positions of those of the ids that are here."""
        found = np.unique(self.find(ids))
        return found[found >= 0]
