"""Conversion of Linear layers between dense, packed 2:4, and 2:4 in training."""

from __future__ import annotations

from typing import Literal, get_args

from torch import nn

from sparse_core.common.surgery import replace_modules, share_weight

Linears = Literal["dense", "2:4", "2:4-training"]
"""``nn.Linear``, ``sparse_core.nm.SparseLinear`` or ``sparse_core.nm.SparseTrainingLinear``."""


def convert_linears(model: nn.Module, kind: Linears) -> None:
    """Replace the Linear layers in ``model`` by those of a kind, with the same weights.

    ``"2:4"`` keeps the larger weights of each group. Layers in 2:4 training keep what their next step would
    keep, also when they become dense; pruned weights become zeros. Layers that share a weight still share it.
    Make a new optimiser afterwards, because parameters may be new. Other subclasses of ``nn.Linear`` stay.
    An error changes nothing.

    Args:
        model: any module except a Linear layer itself.
        kind: of the new Linear layers.

    Raises:
        ValueError: an unknown kind, sizes of a layer (which is named) that it does not support, or ``model``
            itself is such a layer.
    """
    from sparse_core.nm.layers.sparse_linear import SparseLinear

    if kind not in get_args(Linears):
        raise ValueError(f"linears must be one of {', '.join(get_args(Linears))}; got {kind!r}")
    found = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, SparseLinear) or type(module) in _linear_types()
    }
    if "" in found:
        raise ValueError("convert_linears cannot replace the model itself: put it into a Sequential")
    for name, module in found.items():
        check_sizes(name, module.in_features, module.out_features, kind)
    converted: dict[nn.Module, nn.Module] = {}
    firsts: dict[int, nn.Module] = {}
    for module in found.values():
        layer = converted[module] = _convert(module, kind)
        values = module.values if isinstance(module, SparseLinear) else module.weight
        first = firsts.setdefault(id(values), layer)
        if first is not layer:
            share_weight(layer, first)
    replace_modules(model, converted)


def check_sizes(name: str, columns: int, rows: int, kind: Linears) -> None:
    """Raise ``ValueError`` unless the kind supports ``columns`` inputs and ``rows`` outputs."""
    if kind == "2:4" and columns % 4:
        raise ValueError(f"layer {name!r} has {columns} inputs; 2:4 needs a multiple of 4")
    if kind == "2:4-training" and (columns % 4 or rows % 4):
        raise ValueError(
            f"layer {name!r} has {columns} inputs and {rows} outputs; 2:4 training needs multiples of 4"
        )


def _linear_types() -> tuple[type[nn.Linear], ...]:
    from sparse_core.nm.training import SparseTrainingLinear

    return (nn.Linear, SparseTrainingLinear)


def _convert(layer: nn.Module, kind: Linears) -> nn.Module:
    from sparse_core.nm.layers.sparse_linear import SparseLinear
    from sparse_core.nm.training import SparseTrainingLinear

    if isinstance(layer, SparseLinear):
        return layer if kind == "2:4" else _convert(layer.to_dense(), kind)
    assert isinstance(layer, nn.Linear)
    if kind == "2:4":
        mask = layer.mask() if isinstance(layer, SparseTrainingLinear) else None
        return SparseLinear.from_dense(layer, mask=mask)
    if kind == "2:4-training":
        return layer if isinstance(layer, SparseTrainingLinear) else SparseTrainingLinear.from_dense(layer)
    if isinstance(layer, SparseTrainingLinear):
        return SparseLinear.from_dense(layer, mask=layer.mask()).to_dense()
    return layer
