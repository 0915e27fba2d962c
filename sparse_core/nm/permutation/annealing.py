"""Simulated annealing over exchanges of columns, with many chains and all stripes in parallel."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from sparse_core.nm.permutation.stripes import excess_sums, retained_magnitude, stripe_slots, tile_size


def anneal(
    magnitudes: Tensor,
    order: Tensor,
    n: int,
    *,
    steps: int,
    temperatures: tuple[float, float],
    generator: torch.Generator,
    stop: Callable[[int], bool],
) -> Tensor:
    """Run heat-bath annealing (Kirkpatrick, Gelatt and Vecchi, Science 1983) from several starts at once.

    In each step every chain pairs its stripes at random. Each pair takes one of the m * m exchanges of two
    columns, or none, with probability proportional to exp(gain / temperature).

    Args:
        magnitudes: (columns, rows).
        order: (chains, stripes, m) int64, the starts; at least two stripes.
        n: columns to keep of each m.
        steps: number of steps.
        temperatures: first and last, falling geometrically, in standard deviations of the first step's gains.
        generator: on the device of ``magnitudes``.
        stop: called with the number of each step; True ends the run early.

    Returns:
        The end of each chain, (chains, stripes, m).
    """
    chains, stripes, m = order.shape
    half = stripes // 2
    first, last = temperatures
    scale: Tensor | None = None
    for step in range(steps):
        if stop(step):
            break
        shuffle = torch.rand(
            (chains, stripes), generator=generator, device=order.device, dtype=torch.float32
        ).argsort(dim=1)
        order = order.gather(1, shuffle[:, :, None].expand(-1, -1, m))
        gains = _swap_gains(magnitudes, order[:, : 2 * half], n)
        if scale is None:
            scale = gains.std().clamp_min(torch.finfo(gains.dtype).tiny)
        temperature = scale * first * (last / first) ** (step / max(1, steps - 1))
        order = _exchange(order, _sample(gains / temperature, generator), half)
    return order


def best_chain(magnitudes: Tensor, order: Tensor, n: int) -> Tensor:
    """Return the chain of ``order`` (chains, stripes, m) that keeps most, (stripes, m)."""
    kept = torch.stack([retained_magnitude(magnitudes[chain], n).sum() for chain in order])
    return order[kept.argmax()]


def _swap_gains(magnitudes: Tensor, order: Tensor, n: int) -> Tensor:
    """Return the gain (chains, pairs, m * m) of exchanging column i of one stripe for j of the other."""
    chains, stripes, m = order.shape
    half = stripes // 2
    pairs = torch.stack([order[:, :half], order[:, half:]], dim=2).reshape(-1, 2, m)
    tile = tile_size(m * m * magnitudes.shape[1], magnitudes.device)
    return torch.cat([_pair_gains(magnitudes[part], n) for part in pairs.split(tile)]).reshape(
        chains, half, m * m
    )


def _pair_gains(columns: Tensor, n: int) -> Tensor:
    """Return (pairs, m, m) for columns (pairs, 2, m, rows)."""
    slots = stripe_slots(columns, n)
    upper = slots.without[:, 0].unsqueeze(2) + excess_sums(columns[:, 1], slots.threshold[:, 0])
    lower = slots.without[:, 1].unsqueeze(2) + excess_sums(columns[:, 0], slots.threshold[:, 1])
    return upper + lower.mT - slots.retained.sum(dim=1)[:, None, None]


def _sample(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Draw one exchange per pair, or -1 for none, by the Gumbel-max rule."""
    logits = nn.functional.pad(logits, (1, 0))
    waiting = torch.empty_like(logits).exponential_(generator=generator)
    return (logits - waiting.log()).argmax(dim=-1) - 1


def _exchange(order: Tensor, chosen: Tensor, half: int) -> Tensor:
    m = order.shape[2]
    upper, lower = order[:, :half], order[:, half : 2 * half]
    moved = (chosen >= 0).unsqueeze(2)
    i = (chosen.clamp_min(0) // m).unsqueeze(2)
    j = (chosen.clamp_min(0) % m).unsqueeze(2)
    from_upper, from_lower = upper.gather(2, i), lower.gather(2, j)
    new_upper = upper.scatter(2, i, torch.where(moved, from_lower, from_upper))
    new_lower = lower.scatter(2, j, torch.where(moved, from_upper, from_lower))
    return torch.cat([new_upper, new_lower, order[:, 2 * half :]], dim=1)
