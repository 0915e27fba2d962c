"""Merge one tensor with any method."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sparse_core.merging.arithmetic.linear_combinations import (
    Factors,
    combine_span,
    karcher_factors,
    model_stock_factors,
    nuslerp_factors,
)
from sparse_core.merging.arithmetic.pieces import Delta
from sparse_core.merging.arithmetic.sce import fuse_tensor
from sparse_core.merging.arithmetic.sums import Share, merge_tensor, slerp_tensor
from sparse_core.merging.rules import Rule


def merge_one(base: Tensor | None, shares: Sequence[Share], rule: Rule, *, name: str, out: Tensor) -> Tensor:
    """Merge one tensor of all models into the contiguous ``out``, in its type.

    Shares hold differences from the base, or the models themselves if the method merges models or there is no
    base.
    """
    combine, deltas = rule.method.combine, [share.delta for share in shares]
    if combine == "slerp" and base is not None:
        return slerp_tensor(base, deltas[0], shares[0].weight, name=name, out=out)
    if combine == "nuslerp":
        first, second = (share.weight for share in shares)
        t = 0.5 if abs(first + second) < 1e-6 else second / (first + second)
        return _by_rows(base, deltas, rule, nuslerp_factors(t), name, out)
    if combine == "model_stock":
        return _by_rows(base, deltas, rule, model_stock_factors, name, out)
    if combine == "karcher":
        if len(deltas) == 1:
            out.view(-1).copy_(deltas[0].values)
        else:
            found = karcher_factors(int(rule.option("max_iter")), rule.option("tol"))
            combine_span(None, deltas, found, out, name=name)
        return out
    if combine == "sce" and base is not None:
        fuse_tensor(base, deltas, rule.option("select_topk"), out, name=name)
        return out
    return merge_tensor(base, shares, rule, name=name, out=out)


def _by_rows(
    base: Tensor | None, deltas: Sequence[Delta], rule: Rule, factors: Factors, name: str, out: Tensor
) -> Tensor:
    """Merge the tensor as one vector, or row by row along its last or first dimension."""
    stock = rule.method.combine == "model_stock"
    by_rows = rule.option("filter_wise") if stock else not rule.option("nuslerp_flatten")
    rows = out.numel() // out.shape[-1] if by_rows and out.ndim > 1 and out.numel() else 1
    if stock or rows == 1 or not rule.option("nuslerp_row_wise"):
        combine_span(base, deltas, factors, out, rows=rows, name=name)
        return out
    turned = torch.empty_like(out.transpose(0, -1), memory_format=torch.contiguous_format)
    shape = out.shape

    def turn(flat: Tensor) -> Tensor:
        return flat.reshape(shape).transpose(0, -1).contiguous()

    moved = [
        Delta(turn(one.values), None if one.base is None else turn(one.base), label=one.label)
        for one in deltas
    ]
    combine_span(
        None if base is None else turn(base),
        moved,
        factors,
        turned,
        rows=turned.numel() // turned.shape[-1],
        name=name,
    )
    return out.copy_(turned.transpose(0, -1))
