"""Arrays that grow at the end while others read them."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

Number = TypeVar("Number", bound=np.generic)


class GrowingRows(Generic[Number]):
    """(rows, width) numbers: a fixed part, usually mapped from a file, and a part in memory that grows.

    Rows never change once they are there. A reader that knows how many rows there were may go on reading
    them while one writer appends.

    Args:
        width: numbers a row.
        dtype: of the numbers.
        fixed: (rows, width) to start with; never written to.
    """

    def __init__(self, width: int, dtype: DTypeLike, fixed: NDArray[Number] | None = None) -> None:
        self._fixed: NDArray[Number] = np.empty((0, width), dtype) if fixed is None else fixed
        self._grown: NDArray[Number] = np.empty((0, width), dtype)
        self._count = 0

    def __len__(self) -> int:
        return len(self._fixed) + self._count

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return self._fixed.nbytes + self._grown.nbytes

    @property
    def parts(self) -> tuple[NDArray[Number], NDArray[Number]]:
        """The fixed part, and the one that grows, whose end may not be written yet."""
        return self._fixed, self._grown

    def append(self, rows: NDArray[Number]) -> None:
        """Add (new, width) rows; amortised time."""
        needed = self._count + len(rows)
        if needed > len(self._grown):
            larger = np.empty(
                (max(needed, 2 * len(self._grown), 64), self._grown.shape[1]), self._grown.dtype
            )
            larger[: self._count] = self._grown[: self._count]
            larger[self._count : needed] = rows
            self._grown = larger
        else:
            self._grown[self._count : needed] = rows
        self._count = needed

    def between(self, start: int, stop: int) -> NDArray[Number]:
        """Rows start to stop: a view where they lie in one part."""
        fixed = len(self._fixed)
        if stop <= fixed:
            return self._fixed[start:stop]
        if start >= fixed:
            return self._grown[start - fixed : stop - fixed]
        return np.concatenate([self._fixed[start:], self._grown[: stop - fixed]])

    def take(self, positions: NDArray[np.integer]) -> NDArray[Number]:
        """(positions, width) rows at rising positions."""
        fixed = len(self._fixed)
        if fixed == 0:
            return self._grown.take(positions, axis=0)
        if len(positions) == 0 or positions[-1] < fixed:
            return self._fixed.take(positions, axis=0)
        split = int(np.searchsorted(positions, fixed))
        return np.concatenate(
            [self._fixed.take(positions[:split], axis=0), self._grown.take(positions[split:] - fixed, axis=0)]
        )
