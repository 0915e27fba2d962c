"""Random unit vectors in place of an encoder's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def random_directions(generator: np.random.Generator, count: int, dim: int) -> NDArray[np.float64]:
    """Return (count, dim) random unit vectors."""
    rows = generator.standard_normal((count, dim))
    found: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found


def unit_vector(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the vector with length 1."""
    found: NDArray[np.float64] = vector / np.linalg.norm(vector)
    return found


def noisy_vector(
    generator: np.random.Generator, direction: NDArray[np.float64], noise: float
) -> NDArray[np.float64]:
    """Return a unit vector near a direction (dim,): with normal noise of this scale per number."""
    return unit_vector(direction + noise * generator.standard_normal(len(direction)))
