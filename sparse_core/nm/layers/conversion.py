"""Replace the Linear layers of a model by packed ones, and back."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from rich.progress import track
from torch import Tensor, nn

from sparse_core.common.surgery import Select, check_names, is_parametrised, replace_modules
from sparse_core.nm.layers import SparseLinear
from sparse_core.nm.layers.block_linear import BlockSparseLinear
from sparse_core.nm.layers.conversion import ConversionReport, ConvertedLayer, SkippedLayer
from sparse_core.nm.layers.encoder import call_packed_layers, restore_fused_layers
from sparse_core.nm.layers.int8_linear import SparseLinearInt8
from sparse_core.nm.layers.packed_layer import KeepDense
from sparse_core.nm.pattern import TWO_FOUR, Block, NMPattern, Pattern
from sparse_core.nm.pruning.calibration import InputStatistics
from sparse_core.nm.pruning.selection import (
    Conv1D,
    as_linear,
    is_plain_linear,
    outputs_first,
    selected_layers,
)

PackedModule = SparseLinear | SparseLinearInt8 | BlockSparseLinear
"""The layers that :func:`sparsify` puts in."""


def sparsify(
    model: nn.Module,
    pattern: Pattern | Mapping[str, Pattern | None] = TWO_FOUR,
    *,
    select: Select = None,
    masks: Mapping[str, Tensor] | None = None,
    inplace: bool = True,
    quantise: bool = False,
    statistics: Mapping[str, InputStatistics] | None = None,
    keep_dense: KeepDense = "auto",
    progress: bool = False,
) -> ConversionReport:
    """Replace ``nn.Linear`` layers by :class:`SparseLinear`, or :class:`BlockSparseLinear` for blocks.

    So are ``Conv1D`` layers of transformers, which are linear; their masks are of their weight's shape,
    (in, out). A weight that already has the pattern is packed as it is; of another the largest values
    (blocks) are kept. A parametrised weight is taken as computed and its parametrisation dropped. Nothing
    is changed when an error is raised.

    Args:
        model: any module. Its optimiser must be made again: the parameters are others.
        pattern: n:m or blocks for all layers, or one for each name (``None`` or missing: left dense).
        select: which layers: a function of name and module, or a regular expression for the name.
        masks: (out, in) bool of what to keep by layer name, such as ``PruneReport.masks``; names of layers
            that are not converted are left alone.
        inplace: change ``model`` itself; otherwise a copy.
        quantise: int8 values and inputs, for inference.
        statistics: of the inputs, by name (:func:`sparse_core.nm.pruning.calibration.collect_inputs`): with
            ``quantise`` these layers get a fixed scale for their inputs; others take one of each input.
        keep_dense: whether layers keep a dense copy for row counts where dense is faster.
        progress: show a progress bar.

    Returns:
        The model and what became of each layer.

    Raises:
        ValueError: no layer matches (says why each was left out), a width, mask or weight does not fit, an
            unknown name, or ``quantise`` with blocks.
    """
    check_names(model, masks, "masks")
    check_names(model, statistics, "statistics")
    if not inplace:
        model = copy.deepcopy(model)
    layers, skipped = _plan(model, pattern, select)
    replacements: dict[nn.Module, nn.Module] = {}
    converted = []
    for name, module in track(layers.items(), "packing", disable=not progress):
        linear = as_linear(module)
        assert isinstance(linear, nn.Linear)
        wanted = pattern[name] if isinstance(pattern, Mapping) else pattern
        assert wanted is not None  # selected_layers leaves those out.
        mask = None if masks is None or name not in masks else outputs_first(module, masks[name])
        layer: PackedModule = _packed_layer(name, linear, wanted, mask, keep_dense)
        kept = _kept_magnitude(linear.weight, layer.weight)
        if quantise:
            layer = _quantised(name, layer, statistics)
        replacements[module] = layer
        note = "its parametrisation was dropped" if is_parametrised(module) else ""
        before = linear.weight.nbytes
        shape = (linear.out_features, linear.in_features)
        converted.append(
            ConvertedLayer(
                name, shape, wanted, type(layer).__name__, before, weight_nbytes(layer), kept, note
            )
        )
    model = replace_modules(model, replacements)
    changed = call_packed_layers(model)
    notes = [f"{name or '(model)'}: torch's fused path is off, it takes no packed weight" for name in changed]
    return ConversionReport(model, converted, skipped, notes)


def densify(model: nn.Module, *, inplace: bool = True) -> nn.Module:
    """Put an ``nn.Linear`` with exactly the masked weights in the place of each packed layer.

    A layer with an activation becomes an ``nn.Sequential`` of both.

    Args:
        model: a converted model.
        inplace: change ``model`` itself; otherwise a copy.

    Returns:
        The model, or the new layer where the model was one packed layer.

    Raises:
        ValueError: the model holds no packed layer.
    """
    if not inplace:
        model = copy.deepcopy(model)
    packed = require_packed_layers(model)
    model = replace_modules(model, {layer: _dense(layer) for layer in packed.values()})
    restore_fused_layers(model)
    return model


def packed_layers(model: nn.Module) -> dict[str, PackedModule]:
    """The packed layers of a model by dotted name, each once."""
    return {name: module for name, module in model.named_modules() if isinstance(module, PackedModule)}


def require_packed_layers(model: nn.Module) -> dict[str, PackedModule]:
    """:func:`packed_layers`; ``ValueError`` where there are none."""
    found = packed_layers(model)
    if not found:
        raise ValueError("the model holds no packed layer: sparsify puts them in")
    return found


def weight_nbytes(layer: PackedModule) -> int:
    """Bytes of the stored weight: values, indices and scales, without bias and dense copy."""
    if isinstance(layer, BlockSparseLinear):
        return layer.values.nbytes + layer.row_ptr.nbytes + layer.col.nbytes
    scales = layer.weight_scale.nbytes if isinstance(layer, SparseLinearInt8) else 0
    return layer.values.nbytes + layer.metadata.nbytes + scales


def _plan(
    model: nn.Module, pattern: Pattern | Mapping[str, Pattern | None], select: Select
) -> tuple[dict[str, nn.Module], list[SkippedLayer]]:
    """Layers that can be converted by name, and the modules that stay; raises when none can."""
    modules = dict(model.named_modules())

    def obstacle(name: str, linear: nn.Module) -> str | None:
        if name and isinstance(modules[name.rpartition(".")[0]], nn.MultiheadAttention):
            return "nn.MultiheadAttention multiplies by its weight without calling it"
        if not is_plain_linear(linear):
            return f"{type(linear).__name__} computes something else than nn.Linear"
        return None

    selection = selected_layers(
        model,
        pattern,
        select,
        (nn.Linear, Conv1D),
        rule=obstacle,
        replacing=True,
        nothing="no layer can be packed: ",
    )
    skipped = [
        SkippedLayer(
            name,
            type(modules[name]).__name__,
            "masked only: no packed convolution" if isinstance(modules[name], nn.Conv2d) else reason,
        )
        for name, reason in selection.skipped.items()
    ]
    return selection.layers, skipped


def _packed_layer(
    name: str, linear: nn.Linear, pattern: Pattern, mask: Tensor | None, keep_dense: KeepDense
) -> SparseLinear | BlockSparseLinear:
    try:
        if isinstance(pattern, Block):
            return BlockSparseLinear.from_dense(linear, pattern, mask=mask)
        return SparseLinear.from_dense(
            linear, NMPattern(pattern.n, pattern.m), mask=mask, keep_dense=keep_dense
        )
    except ValueError as error:
        raise ValueError(f"layer {name or '(model)'}: {error}") from error


def _quantised(
    name: str, layer: PackedModule, statistics: Mapping[str, InputStatistics] | None
) -> SparseLinearInt8:
    if not isinstance(layer, SparseLinear):
        raise ValueError(f"layer {name or '(model)'}: quantise=True needs n:m, there is no int8 for blocks")
    return layer.quantise(None if statistics is None else statistics.get(name))


def _kept_magnitude(before: Tensor, after: Tensor) -> float:
    total = float(before.detach().double().abs().sum())
    return float(after.detach().double().abs().sum()) / total if total else 1.0


def _dense(layer: PackedModule) -> nn.Module:
    linear = layer.to_dense()
    if isinstance(layer, BlockSparseLinear) or layer.activation is None:
        return linear
    activation = nn.ReLU() if layer.activation == "relu" else nn.GELU()
    return nn.Sequential(linear, activation).train(layer.training)
