"""Replace the Linear and Conv2d layers of a model by layers that train sparse."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor, nn

from sparse_core.common.surgery import Select, choose_layers, is_parametrised, replace_modules
from sparse_core.common.table import Report, Table, cell, left_out
from sparse_core.dynamic.rigl.budgets import Budget, layer_densities
from sparse_core.dynamic.rigl.grid import Structure
from sparse_core.dynamic.rigl.layers import RigLConv2d, RigLLinear
from sparse_core.dynamic.rigl.sparse_layer import Execution

Keep = Literal["random", "magnitude"]


class SparseLayer(NamedTuple):
    """One layer that trains sparse: weight shape, number of stored weights, and density."""

    shape: tuple[int, ...]
    connections: int
    density: float


@dataclass(frozen=True)
class SparseTrainingReport(Report):
    """Result of :func:`sparse_training`.

    Attributes:
        layers: sparse layers by name.
        skipped: reasons for the layers that stay dense.
        sparsity: share of the weights of all selected layers that is left out; includes dense layers.
    """

    layers: dict[str, SparseLayer]
    skipped: dict[str, str]
    sparsity: float

    def tables(self) -> list[Table | str]:
        """Return one row per layer, the layers that stay dense, and the sparsity."""
        rows = [
            (name, layer.shape, layer.connections, cell(layer.density, ".2%"))
            for name, layer in self.layers.items()
        ]
        sparsity = f"sparsity of the selected layers: {self.sparsity:.2%}"
        return [Table(("layer", "weight", "connections", "density"), rows), left_out(self.skipped), sparsity]


def sparse_training(
    model: nn.Module,
    sparsity: float,
    *,
    budget: Budget = "erdos-renyi-kernel",
    structure: Structure = "unstructured",
    block_size: int | tuple[int, int] = 16,
    execution: Execution = "sparse",
    keep: Keep = "random",
    select: Select = None,
    dense: Collection[str] = (),
    seed: int = 0,
) -> SparseTrainingReport:
    """Replace dense layers by :class:`RigLLinear` and :class:`RigLConv2d`, in place.

    Create the optimiser afterwards, because the parameters are new.

    Args:
        model: contains ``nn.Linear`` or ``nn.Conv2d`` below its top level.
        sparsity: sparsity of all selected layers together.
        budget: its distribution, see :func:`sparse_core.dynamic.rigl.budgets.layer_densities`.
        structure, block_size: see :func:`sparse_core.dynamic.rigl.grid.plan_grid`. Layers that blocks do not
            divide stay dense and do not count.
        execution: see :class:`sparse_core.dynamic.rigl.sparse_layer.SparseTrainedLayer`.
        keep: ``"random"`` starts from a random topology with new values (training from scratch);
            ``"magnitude"`` keeps the largest weights and their values (of a trained model).
        select: layers to replace: a function of name and module, or a regular expression for the name.
        dense: names that stay dense and count in the budget.
        seed: seed of topologies and values.

    Raises:
        ValueError: an option out of range, NaN weights with ``keep="magnitude"``, or nothing to replace.
    """
    if keep not in get_args(Keep):
        raise ValueError(f"keep must be one of {get_args(Keep)}, got {keep!r}")
    found, skipped = _candidates(model, select, structure, block_size)
    shapes = {name: tuple(module.weight.shape) for name, module in found.items()}
    densities = layer_densities(shapes, sparsity, budget=budget, dense=dense)
    layers, stored = {}, 0
    for number, (name, module) in enumerate(found.items()):
        size = module.weight.numel()
        if densities[name] >= 1:
            skipped[name] = "kept dense" if name in dense else f"dense by the budget {budget!r}"
            stored += size
            continue
        layer = _sparse_layer(
            module,
            sparsity=1 - densities[name],
            structure=structure,
            block_size=block_size,
            execution=execution,
            seed=seed + number,
        )
        if keep == "magnitude":
            _keep_largest(layer, module, name)
        replace_modules(model, {module: layer.train(module.training)})
        layers[name] = SparseLayer(shapes[name], layer.values.numel(), layer.grid.density)
        stored += layer.values.numel()
    total = sum(module.weight.numel() for module in found.values())
    return SparseTrainingReport(layers, skipped, 1 - stored / total)


def dense_training(model: nn.Module) -> nn.Module:
    """Replace sparse layers by dense ones with the same weights, in place; returns the model."""
    sparse = [part for part in model.modules() if isinstance(part, RigLLinear | RigLConv2d)]
    replace_modules(model, {part: part.to_dense() for part in sparse if part is not model})
    return model


def _candidates(
    model: nn.Module, select: Select, structure: Structure, block_size: int | tuple[int, int]
) -> tuple[dict[str, nn.Linear | nn.Conv2d], dict[str, str]]:
    def unfit(name: str, module: nn.Module) -> str | None:
        assert isinstance(module, nn.Linear | nn.Conv2d)
        if not name:
            return "the model itself cannot be replaced: put it into a Sequential"
        return _unfit(module, structure, block_size)

    modules = list(model.modules())
    sparse = any(isinstance(module, RigLLinear | RigLConv2d) for module in modules)
    if sparse and not any(isinstance(module, nn.Linear | nn.Conv2d) for module in modules):
        raise ValueError("all layers are sparse already. Call dense_training(model) first")
    selection = choose_layers(
        model,
        (nn.Linear, nn.Conv2d),
        select,
        rule=unfit,
        replacing=True,
        nothing="nothing to replace: no layer matches any pattern",
    )
    # Layers that were not selected are not reported.
    skipped = {name or "model": why for name, why in selection.skipped.items() if why != "not selected"}
    return cast("dict[str, nn.Linear | nn.Conv2d]", selection.layers), skipped


def _unfit(
    module: nn.Linear | nn.Conv2d, structure: Structure, block_size: int | tuple[int, int]
) -> str | None:
    if type(module) not in (nn.Linear, nn.Conv2d):
        if is_parametrised(module):
            return "its weight is parametrised: torch.nn.utils.parametrize.remove_parametrizations first"
        return f"{type(module).__name__} may compute something else, or torch reads its weight without a call"
    if isinstance(module, nn.Conv2d):
        if module.groups != 1:
            return "grouped convolution"
        if module.padding_mode != "zeros" or isinstance(module.padding, str):
            return "padding must be numeric and filled with zeros"
    rows, columns = module.weight.shape[0], module.weight[0].numel()
    r, c = block_size if isinstance(block_size, tuple) else (block_size, block_size)
    if structure == "block" and (rows % r or columns % c):
        return f"blocks of {r}x{c} do not divide {rows}x{columns}"
    return None


def _sparse_layer(module: nn.Linear | nn.Conv2d, **options: Any) -> RigLLinear | RigLConv2d:
    options |= {"device": module.weight.device, "dtype": module.weight.dtype}
    bias = module.bias is not None
    if isinstance(module, nn.Linear):
        layer: RigLLinear | RigLConv2d = RigLLinear(module.in_features, module.out_features, bias, **options)
    else:
        sizes = {name: getattr(module, name) for name in ("kernel_size", "stride", "padding", "dilation")}
        layer = RigLConv2d(module.in_channels, module.out_channels, bias=bias, **sizes, **options)
    if module.bias is not None and layer.bias is not None:
        with torch.no_grad():
            layer.bias.copy_(module.bias)
    return layer


def _keep_largest(layer: RigLLinear | RigLConv2d, module: nn.Linear | nn.Conv2d, name: str) -> None:
    matrix: Tensor = layer.as_matrix(module.weight.detach())
    if not bool(matrix.isfinite().all()):
        raise ValueError(f"{name}: weights are NaN or infinite and cannot be ranked")
    layer.load_matrix(matrix, layer.grid.best(layer.grid.by_cell(matrix)))
