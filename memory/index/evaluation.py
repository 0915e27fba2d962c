"""Recall of an index, and synthetic data to measure it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from memory.index.neighbours import Floats


class Clustered(NamedTuple):
    """Synthetic data.

    Attributes:
        vectors: (rows, dim) float32 unit vectors.
        queries: (queries, dim) float32 unit vectors from the same clusters, none of them in ``vectors``.
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
    """Draw unit vectors around random unit centres.

    Args:
        rows: number of vectors.
        queries: number of queries.
        dim: length of a vector.
        centres: number of clusters; each vector belongs to a random one.
        noise: standard deviation of the normal noise per dimension, before normalization.
        seed: seed of all random numbers.

    Raises:
        ValueError: a negative size or noise.
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
    """Scale the rows to length 1."""
    scaled: Floats = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled.astype(np.float32, copy=False)


def recall(found: ArrayLike, truth: ArrayLike) -> float:
    """Return the share of the true ids that were found.

    Args:
        found: (queries, k) ids, -1 for none.
        truth: (queries, k) ids, -1 for none; these do not count.

    Returns:
        A number from 0 to 1; 1 without any true ids.
    """
    answers, right = np.asarray(found), np.asarray(truth)
    if answers.ndim != 2 or right.ndim != 2 or len(answers) != len(right):
        raise ValueError(
            f"found and truth must have one row per query, got {answers.shape} and {right.shape}"
        )
    wanted = right >= 0
    hits = (answers[:, :, None] == right[:, None, :]).any(axis=1) & wanted
    asked = int(wanted.sum())
    return float(hits.sum() / asked) if asked else 1.0
