"""Functions that change scores before the softmax: ALiBi, relative positions, a soft cap, or your own.

The function gets the scaled scores and the indices of batch entry, head, query and key, int64 tensors that
broadcast to the scores. It works elementwise. FlexAttention has the same ``score_mod`` signature.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

#: ``function(scores, batch, head, query, key) -> scores``.
ScoreFunction = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]

#: Name of the attribute of a score function that holds its number of query heads.
_HEADS = "sparse_core_heads"


def check_score_heads(function: ScoreFunction | None, heads: int) -> None:
    """Raise ``ValueError`` if a function of this module was made for another number of query heads."""
    made_for = getattr(function, _HEADS, heads)
    if made_for != heads:
        raise ValueError(f"score_mod was made for {made_for} heads but q has {heads}: make it for {heads}")


def _for_heads(function: ScoreFunction, heads: int) -> ScoreFunction:
    setattr(function, _HEADS, heads)
    return function


def alibi(heads: int, *, device: torch.device | str | None = None) -> ScoreFunction:
    """Return a function that lowers each score by distance times a slope of the head (Press et al. 2022).

    Args:
        heads: query heads. For a power of two the slopes are the powers of 2^(-8/heads); for other numbers
            those of the paper's code.
        device: of the operands.

    Raises:
        ValueError: no heads.
    """
    if heads < 1:
        raise ValueError(f"heads must be at least 1, got {heads}")
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * place / power) for place in range(1, power + 1)]
    slopes += [2.0 ** (-4.0 * place / power) for place in range(1, 2 * (heads - power) + 1, 2)]
    table = torch.tensor(slopes, device=device, dtype=torch.float32)

    def lowered(scores: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return scores - table[head] * (query - key).abs()

    return _for_heads(lowered, heads)


def relative_positions(table: Tensor) -> ScoreFunction:
    """Return a function that adds a learned bias per head and distance (Raffel et al. 2020, without buckets).

    Args:
        table: (heads, 2 * reach + 1) floating: column ``reach + key - query``; beyond ``reach`` the outermost
            columns apply. It gets gradients with ``impl="reference"``.

    Raises:
        ValueError: another shape.
    """
    if table.ndim != 2 or table.shape[1] % 2 == 0:
        raise ValueError(f"table must be (heads, 2 * reach + 1), got {tuple(table.shape)}")
    reach = table.shape[1] // 2

    def added(scores: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return scores + table[head, (key - query).clamp(-reach, reach) + reach]

    return _for_heads(added, len(table))


def soft_cap(limit: float) -> ScoreFunction:
    """Return a function that computes ``limit * tanh(scores / limit)``, as in Gemma 2 (Gemma Team 2024).

    Raises:
        ValueError: a limit that is not positive.
    """
    if not limit > 0.0:
        raise ValueError(f"limit must be above 0, got {limit}")

    def capped(scores: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return limit * torch.tanh(scores / limit)

    return capped
