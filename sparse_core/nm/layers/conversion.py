"""Replace the Linear layers of a model by packed ones, and back."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from rich.progress import track
from torch import Tensor, nn

from sparse_core.common.surgery import Select, check_names, is_parametrised, replace_modules
from sparse_core.common.table import Column, Report, Table, share_saved
from sparse_core.nm.layers.block_linear import BlockSparseLinear
from sparse_core.nm.layers.coded_layer import CodedLayer
from sparse_core.nm.layers.encoder import call_packed_layers, restore_fused_layers
from sparse_core.nm.layers.int8_linear import SparseLinearInt8
from sparse_core.nm.layers.packed_layer import KeepDense
from sparse_core.nm.layers.sparse_linear import SparseLinear
from sparse_core.nm.pattern import TWO_FOUR, Block, NMPattern, Pattern
from sparse_core.nm.pruning.calibration import InputStatistics
from sparse_core.nm.pruning.selection import (
    Conv1D,
    as_linear,
    is_plain_linear,
    outputs_first,
    selected_layers,
)


@dataclass(frozen=True)
class ConvertedLayer:
    """One packed layer.

    Attributes:
        name: dotted name; ``""`` if the model itself is the layer.
        shape: out, in.
        pattern: n:m or blocks.
        kind: class of the new layer.
        bytes_before: bytes of the dense weight.
        bytes_after: bytes of the packed weight with its positions and scales.
        kept_magnitude: Σ|w| of the kept weights over Σ|w| before; 1 for an all-zero weight.
        note: further remarks; usually empty.
    """

    name: str
    shape: tuple[int, int]
    pattern: Pattern
    kind: str
    bytes_before: int
    bytes_after: int
    kept_magnitude: float
    note: str = ""


@dataclass(frozen=True)
class SkippedLayer:
    """One layer that was not converted.

    Attributes:
        name: dotted name; ``""`` if the model itself is the layer.
        kind: its class.
        reason: why it was skipped.
    """

    name: str
    kind: str
    reason: str


@dataclass(frozen=True)
class ConversionReport(Report):
    """Result of :func:`sparse_core.nm.layers.conversion.sparsify`; ``str(report)`` is a table.

    Attributes:
        model: the converted model: the given one, a copy, or the new layer if the model was one layer.
        converted: packed layers in the model's order.
        skipped: the other modules with a weight matrix.
        notes: further changes.
    """

    model: nn.Module = field(repr=False)
    converted: list[ConvertedLayer]
    skipped: list[SkippedLayer]
    notes: list[str]
    derived: ClassVar = ("bytes_before", "bytes_after")

    @property
    def bytes_before(self) -> int:
        """Bytes of the dense weights of all converted layers."""
        return sum(layer.bytes_before for layer in self.converted)

    @property
    def bytes_after(self) -> int:
        """Bytes of the packed weights of all converted layers."""
        return sum(layer.bytes_after for layer in self.converted)

    def tables(self) -> list[Table | str]:
        """Return one row per layer, the total, notes, and the skipped layers."""
        columns: dict[str, Column] = {
            "layer": lambda layer: layer.name or "(model)",
            "shape": "shape",
            "pattern": "pattern",
            "now": "kind",
            "bytes before": "bytes_before",
            "after": "bytes_after",
            "saved": _saved,
            "kept |w|": "kept_magnitude:.2%",
        }
        total = {
            "layer": "total",
            "bytes before": self.bytes_before,
            "after": self.bytes_after,
            "saved": _saved(self),
        }
        parts: list[Table | str] = [Table.of(self.converted, columns, totals=[total])]
        remarks = [f"{layer.name or '(model)'}: {layer.note}" for layer in self.converted if layer.note]
        if remarks or self.notes:
            parts.append("\n".join(["notes:", *remarks, *self.notes]))
        if self.skipped:
            kinds = [(layer.name or "(model)", layer.kind, layer.reason) for layer in self.skipped]
            parts.append(Table(("layer", "type", "reason"), kinds, title="left out:"))
        return parts


def _saved(sizes: ConvertedLayer | ConversionReport) -> str:
    return share_saved(sizes.bytes_before, sizes.bytes_after)


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

    ``Conv1D`` layers of transformers are linear and are replaced too; their masks have their weight's shape,
    (in, out). A weight that already has the pattern is packed as it is; otherwise the largest values or
    blocks are kept. A parametrised weight is evaluated and its parametrisation dropped. The model does not
    change if an error is raised.

    Args:
        model: any module. Create its optimiser again, because the parameters are new.
        pattern: n:m or blocks for all layers, or one by name (``None`` or missing: stays dense).
        select: layers to convert: a function of name and module, or a regular expression for the name.
        masks: (out, in) bool masks of weights to keep by layer name, for example ``PruneReport.masks``; names
            of other layers are ignored.
        inplace: change ``model`` itself instead of a copy.
        quantise: int8 values and inputs, for inference.
        statistics: input statistics by name (:func:`sparse_core.nm.pruning.calibration.collect_inputs`): with
            ``quantise`` these layers get a fixed input scale; the others compute one for each input.
        keep_dense: keep a dense copy for row counts at which dense is faster.
        progress: show a progress bar.

    Returns:
        The model and what happened to each layer.

    Raises:
        ValueError: no layer matches (with the reasons), a width, mask or weight does not fit, an unknown
            name, or ``quantise`` with blocks.
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
        assert wanted is not None  # selected_layers skips those.
        mask = None if masks is None or name not in masks else outputs_first(module, masks[name])
        layer: CodedLayer = _packed_layer(name, linear, wanted, mask, keep_dense)
        kept = _kept_magnitude(linear.weight, layer.weight)
        if quantise:
            layer = _quantise_layer(name, layer, statistics)
        replacements[module] = layer
        note = "its parametrisation was dropped" if is_parametrised(module) else ""
        before = linear.weight.nbytes
        shape = (linear.out_features, linear.in_features)
        converted.append(
            ConvertedLayer(name, shape, wanted, type(layer).__name__, before, layer.coded.nbytes, kept, note)
        )
    model = replace_modules(model, replacements)
    changed = call_packed_layers(model)
    notes = [f"{name or '(model)'}: torch's fused path is off, it takes no packed weight" for name in changed]
    return ConversionReport(model, converted, skipped, notes)


def densify(model: nn.Module, *, inplace: bool = True) -> nn.Module:
    """Replace each packed layer by an ``nn.Linear`` with exactly the masked weights.

    A layer with an activation becomes an ``nn.Sequential`` of both.

    Args:
        model: a converted model.
        inplace: change ``model`` itself instead of a copy.

    Returns:
        The model, or the new layer if the model was one packed layer.

    Raises:
        ValueError: the model has no packed layer.
    """
    if not inplace:
        model = copy.deepcopy(model)
    packed = packed_layers(model)
    if not packed:
        raise ValueError("the model has no packed layer: convert it with sparsify first")
    model = replace_modules(model, {layer: _dense(layer) for layer in packed.values()})
    restore_fused_layers(model)
    return model


def packed_layers(model: nn.Module) -> dict[str, CodedLayer]:
    """Return the packed layers of a model by dotted name, each once."""
    return {name: module for name, module in model.named_modules() if isinstance(module, CodedLayer)}


def _plan(
    model: nn.Module, pattern: Pattern | Mapping[str, Pattern | None], select: Select
) -> tuple[dict[str, nn.Module], list[SkippedLayer]]:
    """Return the convertible layers by name, and the modules that stay; raises if none is convertible."""
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


def _quantise_layer(
    name: str, layer: CodedLayer, statistics: Mapping[str, InputStatistics] | None
) -> SparseLinearInt8:
    if not isinstance(layer, SparseLinear):
        raise ValueError(f"layer {name or '(model)'}: quantise=True needs an n:m pattern, not blocks")
    return layer.quantise(None if statistics is None else statistics.get(name))


def _kept_magnitude(before: Tensor, after: Tensor) -> float:
    total = float(before.detach().double().abs().sum())
    return float(after.detach().double().abs().sum()) / total if total else 1.0


def _dense(layer: CodedLayer) -> nn.Module:
    dense, activation = layer.to_dense(), getattr(layer, "activation", None)
    if activation is None:
        return dense
    return nn.Sequential(dense, nn.ReLU() if activation == "relu" else nn.GELU()).train(layer.training)
