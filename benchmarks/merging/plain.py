"""Baseline for merging: TIES by full sorts, and whether two results are the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

#: Layers of a model, of six matrices each.
_LAYERS = 12
#: Tolerance for the order of sums, for numbers of about one.
_ROUNDING = 1e-6


def model_sizes(parameters: int) -> dict[str, int]:
    """Sizes of the tensors of a model like a Transformer: an embedding of a fifth, and layers of matrices."""
    embedding = parameters // 5
    matrix = (parameters - embedding) // (6 * _LAYERS)
    sizes = {"embed.weight": embedding}
    sizes |= {f"layers.{layer}.{part}.weight": matrix for layer in range(_LAYERS) for part in range(6)}
    return sizes


def plain_ties(base: Tensor, deltas: Sequence[Tensor], density: float, *, stable: bool = False) -> Tensor:
    """TIES with weights of one as one would write it: sort everything, then whole-tensor formulas."""
    kept = []
    for delta in deltas:
        order = torch.argsort(delta.abs(), descending=True, stable=stable)
        mask = torch.zeros_like(delta, dtype=torch.bool)
        mask[order[: int(density * delta.numel() + 1e-6)]] = True
        kept.append(torch.where(mask, delta, 0.0))
    stacked = torch.stack(kept)
    sign = torch.where(stacked.sum(0) >= 0, 1.0, -1.0)
    agrees = stacked.sign() == sign
    mean = (stacked * agrees).sum(0) / agrees.sum(0).clamp_min(1)
    return base + mean


def compare(
    ours: Mapping[str, Tensor],
    other: Mapping[str, Tensor],
    vectors: Sequence[Mapping[str, Tensor]],
    density: float,
    *,
    ties: bool,
) -> dict[str, Any]:
    """Return the agreement of two merges.

    Args:
        ours: tensors by name.
        other: the same.
        vectors: the deltas that were merged.
        density: share of each that was kept.
        ties: whether ``other`` may have kept other numbers where a magnitude equals the threshold.

    Returns:
        ``same``: share of the numbers that are the same to the bit; ``largest_difference`` where no ties are
        at play; ``ties``: positions that differ because of them; ``agrees``: nothing else differs by more
        than rounding.
    """
    count = same = tied = unexplained = 0
    largest = 0.0
    for name, value in ours.items():
        difference = (value - other[name]).abs()
        count += value.numel()
        same += int((difference == 0).sum())
        places = torch.nonzero(difference > _ROUNDING).flatten()
        if len(places) and ties:
            explained = torch.zeros(len(places), dtype=torch.bool, device=value.device)
            for vector in vectors:
                sizes = vector[name].abs()
                keep = int(density * len(sizes) + 1e-6)
                threshold = sizes.kthvalue(len(sizes) - keep + 1).values
                explained |= sizes[places] == threshold
            tied += int(explained.sum())
            difference[places[explained]] = 0
            places = places[~explained]
        unexplained += len(places)
        largest = max(largest, float(difference.max()))
    return {
        "same": same / count,
        "largest_difference": largest,
        "ties": tied,
        "agrees": unexplained == 0,
    }
