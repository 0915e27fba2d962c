"""Objects of a place, kind and label, each opened by a unique memory."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


class Things:
    """Places and vectors of objects; objects without a vector have a zero row.

    An object has the arrival number of the memory that opened it.

    Attributes:
        numbers: numbers of the objects.
        positions: x and y of each in metres.
        vectors: (rows, dim) float32 of length 1 or zero; rows beyond the objects are free.
        without: True if some object may have no vector.
    """

    __slots__ = ("numbers", "positions", "vectors", "without")

    def __init__(self, dim: int) -> None:
        self.numbers: list[int] = []
        self.positions: list[tuple[float, float]] = []
        self.without = False
        self.vectors = np.zeros((1, dim), dtype=np.float32)

    def append(self, number: int, position: tuple[float, float], vector: NDArray[np.float32] | None) -> None:
        """Add an object."""
        if vector is not None and self.vectors.shape[1] == 0:
            self.vectors = np.zeros((len(self.vectors), len(vector)), dtype=np.float32)
        if len(self.numbers) == len(self.vectors):
            self.vectors = np.concatenate([self.vectors, np.zeros_like(self.vectors)])
        self.vectors[len(self.numbers)] = 0.0 if vector is None else vector
        self.without |= vector is None
        self.numbers.append(number)
        self.positions.append(position)

    def closest(
        self, vector: NDArray[np.float32] | None, position: tuple[float, float], within_m: float
    ) -> tuple[float, int] | None:
        """Return the largest similarity of ``vector`` to a nearby object, and the object; ``None`` if none is
        near.

        If no vectors can be compared, return NaN and the first nearby object.
        """
        x, y = position
        near = [
            row
            for row, (its_x, its_y) in enumerate(self.positions)
            if abs(its_x - x) < within_m and abs(its_y - y) < within_m
        ]
        if not near:
            return None
        if vector is None or self.vectors.shape[1] == 0:
            return math.nan, self.numbers[near[0]]
        if self.vectors.shape[1] != len(vector):
            raise ValueError(f"embedding has {len(vector)} numbers, those before had {self.vectors.shape[1]}")
        # Avoid copies in the usual case that all objects are near and have vectors.
        used = self.vectors[: len(self.numbers)] if len(near) == len(self.numbers) else self.vectors[near]
        products = used @ vector
        if self.without:
            products[~used.any(axis=1)] = -np.inf
        best = int(products.argmax())
        cosine = float(products[best])
        compared = cosine > -math.inf
        return (cosine, self.numbers[near[best]]) if compared else (math.nan, self.numbers[near[0]])

    def remove(self, number: int) -> None:
        """Remove an object."""
        row = self.numbers.index(number)
        del self.numbers[row], self.positions[row]
        self.vectors = np.delete(self.vectors, row, axis=0)
        if len(self.vectors) == 0:
            self.vectors = np.zeros((1, self.vectors.shape[1]), dtype=np.float32)
