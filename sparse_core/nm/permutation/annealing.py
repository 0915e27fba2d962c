"""Simulated annealing over exchanges of columns: many chains and all stripes in the same step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sparse_core.nm.permutation.stripes import retained_magnitude, stripe_slots


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
    """Heat-bath annealing (Kirkpatrick, Gelatt and Vecchi, Science 1983) from several starts at once.

    In each step every chain puts its stripes into random pairs; each pair takes one of the m * m exchanges
    of two columns, or none, with probability proportional to exp(gain / temperature).

    Args:
        magnitudes: (columns, rows).
        order: (chains, stripes, m) int64, the starts; at least two stripes.
        n: kept of each m.
        steps: how many.
        temperatures: first and last, in standard deviations of the gains of the first step; falling
            geometrically.
        generator: on the device of ``magnitudes``.
        stop: asked before each step with its number; true ends the run early.

    Returns:
        (chains, stripes, m), where each chain ended.
    """
    chains, stripes, m = order.shape
    half = stripes // 2
    first, last = temperatures
    scale: Tensor | None = None
    for step in range(steps):
        if stop(step):
            break
        shuffle = torch.rand((chains, stripes), generator=generator, device=order.device).argsort(dim=1)
        order = order.gather(1, shuffle[:, :, None].expand(-1, -1, m))
        gains = _swap_gains(magnitudes, order[:, : 2 * half], n)
        if scale is None:
            scale = gains.std().clamp_min(torch.finfo(gains.dtype).tiny)
        temperature = scale * first * (last / first) ** (step / max(1, steps - 1))
        order = _exchange(order, _sample(gains / temperature, generator), half)
    return order


def best_chain(magnitudes: Tensor, order: Tensor, n: int) -> Tensor:
    """The chain of ``order`` (chains, stripes, m) that keeps most: (stripes, m)."""
    kept = torch.stack([retained_magnitude(magnitudes[chain], n).sum() for chain in order])
    return order[kept.argmax()]


def _swap_gains(magnitudes: Tensor, order: Tensor, n: int) -> Tensor:
    """(chains, pairs, m * m): gain of exchanging column i of the one stripe for j of the other."""
    half = order.shape[1] // 2
    columns = magnitudes[order]
    slots = stripe_slots(columns, n)
    upper, lower = columns[:, :half], columns[:, half:]
    of_upper = (lower.unsqueeze(2) - slots.threshold[:, :half].unsqueeze(3)).relu_().sum(dim=-1)
    of_lower = (upper.unsqueeze(2) - slots.threshold[:, half:].unsqueeze(3)).relu_().sum(dim=-1)
    after = of_upper + slots.without[:, :half, :, None]
    after = after + (of_lower + slots.without[:, half:, :, None]).transpose(-1, -2)
    before = slots.retained[:, :half] + slots.retained[:, half:]
    return (after - before[:, :, None, None]).flatten(2)


def _sample(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One exchange a pair, or -1 for none, drawn by the Gumbel-max rule."""
    logits = torch.cat([torch.zeros_like(logits[..., :1]), logits], dim=-1)
    uniform = torch.rand(logits.shape, generator=generator, device=logits.device).clamp_(1e-9, 1 - 1e-7)
    return (logits - (-uniform.log()).log()).argmax(dim=-1) - 1


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
