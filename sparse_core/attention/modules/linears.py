"""The Linear layers of a module as dense, packed 2:4, or pruned to 2:4 in every step."""

from __future__ import annotations

from typing import Literal, get_args

from torch import nn

from sparse_core.common.surgery import replace_modules, share_weight

Linears = Literal["dense", "2:4", "2:4-training"]
"""``nn.Linear``, ``sparse_core.nm.SparseLinear`` or ``sparse_core.nm.SparseTrainingLinear``."""


def convert_linears(model: nn.Module, kind: Linears) -> None:
    """Replace the Linear layers within ``model`` by those of a kind, with the same weights.

    To ``"2:4"`` the larger weights of each group are kept; of layers in 2:4 training what their next step
    would keep, also when they become dense. Pruned weights come back as zeros. Layers that share a weight go
    on sharing it. An optimiser must be made again: parameters may be others. Other subclasses of
    ``nn.Linear`` stay, and nothing is changed when an error is raised.

    Args:
        model: any module.
        kind: what its Linear layers become.

    Raises:
        ValueError: an unknown kind, the sizes of a layer, which is named, do not fit it, or the model itself
            is such a layer.
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
        raise ValueError("the model itself cannot be replaced: put it into a Sequential")
    for name, module in found.items():
        check_sizes(name, module.in_features, module.out_features, kind)
    converted: dict[nn.Module, nn.Module] = {}
    firsts: dict[int, nn.Module] = {}
    for module in found.values():
        layer = converted[module] = _converted(module, kind)
        held = module.values if isinstance(module, SparseLinear) else module.weight
        first = firsts.setdefault(id(held), layer)
        if first is not layer:
            share_weight(layer, first)
    replace_modules(model, converted)


def check_sizes(name: str, columns: int, rows: int, kind: Linears) -> None:
    """Raise ``ValueError`` unless a layer with ``columns`` inputs and ``rows`` outputs can be of a kind."""
    if kind == "2:4" and columns % 4:
        raise ValueError(f"layer {name!r} cannot be 2:4: it has {columns} inputs, which 4 does not divide")
    if kind == "2:4-training" and (columns % 4 or rows % 4):
        raise ValueError(
            f"layer {name!r} cannot be trained 2:4: it has {columns} inputs and {rows} outputs, which must"
            " both be divisible by 4"
        )


def _linear_types() -> tuple[type[nn.Linear], ...]:
    from sparse_core.nm.training import SparseTrainingLinear

    return (nn.Linear, SparseTrainingLinear)


def _converted(layer: nn.Module, kind: Linears) -> nn.Module:
    from sparse_core.nm.layers.sparse_linear import SparseLinear
    from sparse_core.nm.training import SparseTrainingLinear

    if isinstance(layer, SparseLinear):
        return layer if kind == "2:4" else _converted(layer.to_dense(), kind)
    assert isinstance(layer, nn.Linear)
    if kind == "2:4":
        mask = layer.mask() if isinstance(layer, SparseTrainingLinear) else None
        return SparseLinear.from_dense(layer, mask=mask)
    if kind == "2:4-training":
        return layer if isinstance(layer, SparseTrainingLinear) else SparseTrainingLinear.from_dense(layer)
    if isinstance(layer, SparseTrainingLinear):
        return SparseLinear.from_dense(layer, mask=layer.mask()).to_dense()
    return layer
