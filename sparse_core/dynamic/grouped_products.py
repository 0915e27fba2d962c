"""Products of rows with the weight of their group, without padding: sort by group, one product per group.

The dispatch is that of dropless mixtures of experts (Gale et al., "MegaBlocks", 2023).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class Dispatch(NamedTuple):
    """Rows sorted by group.

    Attributes:
        order: (N * k,) int64, position ``row * k + choice`` of each sorted row.
        inverse: (N * k,) int64, inverse permutation of ``order``.
        groups: (N * k,) int64, rising.
        counts: (G,) int64, rows of each group.
        choices: k.
    """

    order: Tensor
    inverse: Tensor
    groups: Tensor
    counts: Tensor
    choices: int


def plan_dispatch(chosen: Tensor, groups: int) -> Dispatch:
    """Sort rows by their groups ``chosen`` (N, k), int64 below ``groups``; does not wait for the device."""
    flat = chosen.reshape(-1)
    ordered, order = torch.sort(flat, stable=True)
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order), device=order.device)
    edges = torch.arange(groups + 1, device=order.device)
    counts = torch.searchsorted(ordered, edges).diff()
    return Dispatch(order, inverse, ordered, counts, chosen.shape[1])


def send(x: Tensor, plan: Dispatch) -> Tensor:
    """Return (N * k, features): a copy of each row for each of its groups, sorted by group."""
    copies = x[:, None].expand(len(x), plan.choices, x.shape[1]).reshape(-1, x.shape[1])
    return copies.index_select(0, plan.order)


def collect(y: Tensor, plan: Dispatch, weights: Tensor | None = None) -> Tensor:
    """Return (N, features): the sum of each row's results ``y`` (N * k, features), weighted by (N, k)."""
    back = y.index_select(0, plan.inverse).reshape(-1, plan.choices, y.shape[1])
    return back.sum(dim=1) if weights is None else (back * weights[:, :, None]).sum(dim=1)


def grouped_linear(x: Tensor, weight: Tensor, plan: Dispatch, bias: Tensor | None = None) -> Tensor:
    """Multiply each sorted row (rows, in) by the weight (G, out, in) of its group; add its bias (G, out).

    bfloat16 on CUDA takes one launch that reads its sizes on the device, if torch has it and the widths are
    multiples of 8. Otherwise there is one product per group, and reading the sizes waits for the device.
    """
    if _one_launch(x, weight):
        offsets = plan.counts.cumsum(0).to(torch.int32)
        product: Tensor = nn.functional.grouped_mm(x, weight.transpose(1, 2), offs=offsets)
        if bias is None:
            return product
        return product + nn.functional.one_hot(plan.groups, len(weight)).to(bias.dtype) @ bias
    sizes: list[int] = plan.counts.tolist()
    parts = [
        nn.functional.linear(rows, weight[group], None if bias is None else bias[group])
        for group, rows in enumerate(x.split(sizes))
        if len(rows)
    ]
    return torch.cat(parts)


def _one_launch(x: Tensor, weight: Tensor) -> bool:
    return (
        x.is_cuda
        and x.dtype == weight.dtype == torch.bfloat16
        and hasattr(nn.functional, "grouped_mm")
        and weight.shape[1] % 8 == 0
        and weight.shape[2] % 8 == 0
        and torch.cuda.get_device_capability(x.device) >= (8, 0)
    )
