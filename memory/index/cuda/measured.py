"""What an index on a GPU finds of its own rows, measured once these are sorted into cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from memory.index.cuda.exact import exact_top
from memory.index.cuda.keys import Ranked
from memory.index.effort import MEASURED_K
from sparse_core.op import Impl

#: Rows that are asked for.
_QUERIES = 64
#: Equal vectors have scores that differ by rounding.
_ROUNDING = 2e-6


class Measured(NamedTuple):
    """What searches find.

    Attributes:
        recall: share of the ten nearest other rows that was found, from 0 to 1.
        error: standard error of the recall.
        queries: rows that were asked for.
    """

    recall: float
    error: float
    queries: int


def measured(
    vectors: Tensor,
    living: Tensor,
    search: Callable[[Tensor, int], Ranked],
    *,
    seed: int,
    impl: Impl = "auto",
) -> Measured:
    """Search for rows drawn from the seed, each without itself, and compare with all rows.

    Args:
        vectors: (rows, dim) float16.
        living: (living,) int64 rising rows that count.
        search: the scores of (queries, dim) float32 queries and a number of neighbours.
        seed: of the rows drawn.
        impl: of the exact scores.
    """
    count = min(_QUERIES, len(living))
    if count < 2:
        return Measured(1.0, 0.0, 0)
    # Another stream than that of the pivots, which are found better than other rows.
    drawn = np.random.default_rng((seed, 1)).choice(len(living), count, replace=False, shuffle=False)
    queries = vectors[living[torch.from_numpy(np.sort(drawn)).to(living.device)]].float()
    k = min(MEASURED_K + 1, len(living))
    exact = exact_top(vectors, queries, living, k, impl=impl).scores
    found = search(queries, k).scores
    # The row itself is the nearest, or as near as its equals.
    least = exact[:, -1:] - _ROUNDING
    shares = ((found >= least).sum(1) - 1).clamp(0, k - 1).double() / (k - 1)
    error = float(shares.std()) / count**0.5
    return Measured(float(shares.mean()), error, count)
