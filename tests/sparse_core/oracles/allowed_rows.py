"""Attention row by row, each from its allowed keys alone, and operands with NaN and infinities."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

NAMES = ("out", "lse", "gradient of q", "gradient of k", "gradient of v")


def attend(
    operands: list[Tensor], mask: Tensor, scale: float, queries: list[int], keys: list[int]
) -> list[Tensor]:
    """Out, lse and the gradients of q, k and v in float64.

    Args:
        operands: q, k, v and the gradients of out (batch, heads, queries, dim) and of lse.
        mask: (heads or 1, queries, keys) bool.
        scale: of the scores.
        queries, keys: true lengths of the sequences.
    """
    q, k, v, of_out, of_lse = (one.detach().double() for one in operands)
    q, k, v = (one.requires_grad_() for one in (q, k, v))
    group = q.shape[1] // k.shape[1]
    out, lse = torch.zeros_like(q), torch.full(q.shape[:3], -torch.inf, dtype=torch.float64)
    found, gradients = [], []
    for place in np.ndindex(*q.shape[:3]):
        batch, head, query = place
        allowed = mask[head % len(mask), query].nonzero()[:, 0]
        allowed = allowed[allowed < keys[batch]] if query < queries[batch] else allowed[:0]
        if not len(allowed):
            continue
        row = k[batch, head // group, allowed] @ q[place] * scale
        largest = row.detach().max()
        weights = torch.exp(row - torch.where(largest > -torch.inf, largest, 0.0))
        total = torch.where(weights.sum() == 0, 1.0, weights.sum())
        attended = (weights[:, None] * v[batch, head // group, allowed]).sum(dim=0) / total
        level = largest + total.log()
        out[place], lse[place] = attended.detach(), level.detach()
        found.append(attended)
        gradients.append(of_out[place])
        if bool(weights.sum() != 0):
            found.append(level)
            gradients.append(of_lse[place])
    if not found:
        return [out, lse, *(torch.zeros_like(one) for one in (q, k, v))]
    return [out, lse, *torch.autograd.grad(found, (q, k, v), gradients)]


def poisoned(operands: list[Tensor], count: int, seed: int) -> list[Tensor]:
    """Copies with up to ``count`` numbers of each replaced by NaN or an infinity."""
    numbers = np.random.default_rng(seed)
    copies = []
    for one in operands:
        copy = one.detach().clone()
        for _ in range(numbers.integers(count + 1)):
            place = tuple(numbers.integers(size) for size in copy.shape)
            copy[place] = float(numbers.choice([np.nan, np.inf, -np.inf]))
        copies.append(copy)
    return copies


def differences(found: list[Tensor], expected: list[Tensor], tolerance: float) -> list[str]:
    """How the results differ: where they are finite, and by how much there."""
    wrong = []
    for name, ours, wanted in zip(NAMES, found, expected, strict=False):
        ours, wanted = ours.detach().double().cpu(), wanted.double()
        finite = wanted.isfinite()
        other = (ours.isfinite() != finite).nonzero()
        if len(other):
            place = tuple(other[0].tolist())
            wrong.append(f"{name} at {place}: {float(ours[place])}, not {float(wanted[place])}")
            continue
        error = float((ours - wanted)[finite].abs().max()) if bool(finite.any()) else 0.0
        if error > tolerance:
            wrong.append(f"{name} is off by {error:.1e}")
    return wrong
