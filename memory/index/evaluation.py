"""How much of the truth an index finds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from memory.index.neighbours import Floats


class Clustered(NamedTuple):
    """Synthetic data.

    Attributes:
        vectors: (rows, dim) float32 unit vectors.
        queries: (queries, dim) float32 unit vectors of the same clusters, none of them in ``vectors``.
    """

    vectors: Floats
    queries: Floats


def clustered(
    rows: int,
    queries: int,
    *,
    dim: int = 256,
    centres: int = 1000,
    noise: float = 0.05,
    seed: int = 0,
) -> Clustered:
    """Unit vectors around random unit centres.

    Args:
        rows: vectors.
        queries: queries.
        dim: of a vector.
        centres: clusters; each vector belongs to one at random.
        noise: standard deviation of the normal noise in each dimension, before the length is made 1.
        seed: of all random numbers.

    Raises:
        ValueError: negative sizes or noise.
    """
    if min(rows, queries) < 0 or min(dim, centres) < 1 or noise < 0:
        raise ValueError("rows, queries and noise must not be negative; dim and centres at least 1")
    generator = np.random.default_rng(seed)
    middle = _units(generator.standard_normal((centres, dim), dtype=np.float32))

    def drawn(count: int) -> Floats:
        jitter = noise * generator.standard_normal((count, dim), dtype=np.float32)
        return _units(middle[generator.integers(0, centres, count)] + jitter)

    return Clustered(drawn(rows), drawn(queries))


def _units(vectors: Floats) -> Floats:
    """The rows at length 1."""
    scaled: Floats = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled.astype(np.float32, copy=False)


def recall(found: ArrayLike, truth: ArrayLike) -> float:
    """Share of the true ids that were found.

    Args:
        found: (queries, k) ids, -1 for none.
        truth: (queries, k) ids, -1 for none: these are not asked for.

    Returns:
        From 0 to 1; 1 where nothing is asked for.
    """
    answers, right = np.asarray(found), np.asarray(truth)
    if answers.ndim != 2 or right.ndim != 2 or len(answers) != len(right):
        raise ValueError(f"found and truth must have one row a query, got {answers.shape} and {right.shape}")
    wanted = right >= 0
    hits = (answers[:, :, None] == right[:, None, :]).any(axis=1) & wanted
    asked = int(wanted.sum())
    return float(hits.sum() / asked) if asked else 1.0
