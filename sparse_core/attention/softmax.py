"""The softmax over some of the keys, and large intermediates that the backward pass computes again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Result = TypeVar("Result")

#: Scores that a chunk of work may hold, which bounds the memory at any length: on a CPU what its cache holds,
#: on a GPU what keeps it busy.
CHUNK_SCORES = {"cpu": 1 << 20, "cuda": 1 << 24}

#: Up to so many scores are kept for the backward pass; beyond, each chunk is computed again.
KEPT_SCORES = 1 << 24


class MaskedSoftmax(NamedTuple):
    """A softmax before the division, which is cheaper after the product with the values.

    Attributes:
        weights: (..., keys), zero where a key is not allowed.
        total: (..., 1), their sum, or 1 where no key is allowed.
        lse: (...), minus infinity where no key is allowed.
    """

    weights: Tensor
    total: Tensor
    lse: Tensor


def masked_softmax(scores: Tensor, allowed: Tensor | None) -> MaskedSoftmax:
    """Softmax over the last dimension where ``allowed``; rows without any give zeros and no gradient.

    Args:
        scores: (..., keys); keys may be 0.
        allowed: bool that broadcasts to ``scores``, or None for all.
    """
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    if scores.shape[-1]:
        # The largest score cancels, so its gradient does too. A NaN would spread to weights of masked keys.
        largest = scores.detach().amax(dim=-1, keepdim=True)
        largest = torch.where(largest > float("-inf"), largest, 0.0)
    else:
        largest = scores.new_zeros((*scores.shape[:-1], 1))
    weights = torch.exp(scores - largest)
    total = weights.sum(dim=-1, keepdim=True)
    empty = total == 0
    total = total.masked_fill(empty, 1.0)
    lse = (largest + total.log()).masked_fill(empty, float("-inf"))
    return MaskedSoftmax(weights, total, lse.squeeze(-1))


def run_chunk(function: Callable[..., Result], *arguments: Any, recompute: bool) -> Result:
    """``function(*arguments)``; with ``recompute``, backward computes it again and nothing of it is kept."""
    if recompute and torch.is_grad_enabled():
        # Nothing here draws random numbers.
        found: Result = checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)
        return found
    return function(*arguments)


def take(table: Tensor, index: Tensor) -> Tensor:
    """``table[:, index]`` for a flat ``index``, with a gradient that repeats to the bit on every device."""
    # On a CPU the gradient of indexing is added up by several threads, on a GPU that of index_select.
    return table[:, index] if table.is_cuda else table.index_select(1, index)
