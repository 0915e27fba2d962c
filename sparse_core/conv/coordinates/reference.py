"""Sorted-key table in plain torch: the oracle, and the fastest table on a CPU.

A sort visits memory in order, while a hash table jumps.
"""

from __future__ import annotations

import torch
from torch import Tensor


def unique_rows(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return distinct keys (M,) in ascending order, and the row (N,) of each input key."""
    unique, inverse = torch.unique(keys, sorted=True, return_inverse=True)
    return unique, inverse


def lookup(sorted_keys: Tensor, queries: Tensor) -> Tensor:
    """Return the row of every query key, -1 if missing.

    Args:
        sorted_keys: (M,) int64, ascending, distinct.
        queries: any shape, int64.
    """
    if len(sorted_keys) == 0:
        return torch.full_like(queries, -1)
    rows = torch.searchsorted(sorted_keys, queries).clamp_(max=len(sorted_keys) - 1)
    return torch.where(sorted_keys[rows] == queries, rows, -1)


def lookup_runs(sorted_keys: Tensor, first_keys: Tensor, length: int) -> Tensor:
    """Return rows (*shape, length) of runs of consecutive keys, by one search per run; -1 if missing.

    Args:
        sorted_keys: (M,) int64, ascending, distinct.
        first_keys: any shape, int64, the lowest key of each run.
        length: keys in a run.
    """
    # Memory layout of tables of neighbours: all first keys, then all second ones, and so on.
    *leading, count = first_keys.shape
    rows = first_keys.new_full((*leading, length, count), -1).transpose(-1, -2)
    if len(sorted_keys) == 0:
        return rows
    last = len(sorted_keys) - 1
    position = torch.searchsorted(sorted_keys, first_keys)
    for step in range(length):
        # `position` is the lower bound of this key. If the key was found, the next one's is one further.
        found = sorted_keys[position.clamp(max=last)] == first_keys + step
        rows[..., step] = torch.where(found, position, -1)
        position = position + found
    return rows
