"""Score and row in one integer key: the best keys are the largest, and no two rows have equal keys."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

#: Key of an empty place.
MISSING = -(1 << 63)
_LOW = 0xFFFFFFFF


class RankedRows(NamedTuple):
    """Rows by falling score; equal scores by row.

    Attributes:
        scores: (queries, k) float32; -inf fills missing ones.
        rows: (queries, k) int64 rows or their names; -1 fills missing ones.
    """

    scores: Tensor
    rows: Tensor


def keys_of(scores: Tensor, rows: Tensor) -> Tensor:
    """Return int64 keys of float32 scores; rows below 0 are missing."""
    bits = (scores + 0.0).view(torch.int32).to(torch.int64)
    # The bits of negative floats rise as the floats fall.
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return torch.where(rows < 0, MISSING, (ordered << 32) | (_LOW - rows.to(torch.int64)))


def unpack_keys(keys: Tensor) -> RankedRows:
    """Return scores and rows of falling keys."""
    missing = keys == MISSING
    ordered = keys >> 32
    bits = torch.where(ordered < 0, ordered ^ 0x7FFFFFFF, ordered).to(torch.int32)
    scores = bits.view(torch.float32).masked_fill(missing, -torch.inf)
    return RankedRows(scores, (_LOW - (keys & _LOW)).masked_fill(missing, -1))
