"""Sorted-key table in plain torch: the oracle, and the fast path on a CPU.

A sort visits memory in order where a hash table jumps; on a CPU it is the faster way to the same rows.
"""

from __future__ import annotations

import torch
from torch import Tensor


def unique_rows(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct keys in rising order and the row of each input key.

    Args:
        keys: (N,) int64.

    Returns:
        (M,) int64 sorted keys; (N,) int64 rows in [0, M).
    """
    unique, inverse = torch.unique(keys, sorted=True, return_inverse=True)
    return unique, inverse


def lookup(sorted_keys: Tensor, queries: Tensor) -> Tensor:
    """Row of every query key, -1 where absent.

    Args:
        sorted_keys: (M,) int64, rising, distinct.
        queries: any shape, int64.

    Returns:
        Same shape as ``queries``, int64.
    """
    if len(sorted_keys) == 0:
        return torch.full_like(queries, -1)
    rows = torch.searchsorted(sorted_keys, queries).clamp_(max=len(sorted_keys) - 1)
    return torch.where(sorted_keys[rows] == queries, rows, -1)


def lookup_runs(sorted_keys: Tensor, first_keys: Tensor, length: int) -> Tensor:
    """Rows of runs of consecutive keys: one search finds the first, the rest follow it in the table.

    Args:
        sorted_keys: (M,) int64, rising, distinct.
        first_keys: any shape, int64, the lowest key of each run.
        length: keys in a run.

    Returns:
        (*shape, length) int64, -1 where absent.
    """
    # Laid out as tables of neighbours are: all firsts, then all that follow them.
    *leading, count = first_keys.shape
    rows = first_keys.new_full((*leading, length, count), -1).transpose(-1, -2)
    if len(sorted_keys) == 0:
        return rows
    last = len(sorted_keys) - 1
    position = torch.searchsorted(sorted_keys, first_keys)
    for step in range(length):
        # `position` is the lower bound of this key; the next key's is one further where this one was found.
        found = sorted_keys[position.clamp(max=last)] == first_keys + step
        rows[..., step] = torch.where(found, position, -1)
        position = position + found
    return rows
