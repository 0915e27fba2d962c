"""Prune a model in one forward pass over calibration inputs; sparse convolutions are supported.

SparseGPT prunes each layer when its inputs arrive. These inputs have passed the pruned layers before it: this
is the sequential form of the method without one pass per layer. ``sparse_core.nm.prune`` does the same for
Linear and Conv2d layers, one layer at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from rich.progress import Progress
from torch import Tensor, nn
from torch.nn import functional as F

from sparse_core.common.surgery import Select, choose_layers
from sparse_core.common.table import Column, Report, Table, left_out
from sparse_core.compression.model import COMPRESSIBLE, SPARSE_CONVOLUTIONS, layout_of
from sparse_core.conv import SparseConv2d, SparseInverseConv2d, SparseTensor, SubmanifoldConv2d
from sparse_core.nm.packing.matrix_view import MatrixView, pad_columns
from sparse_core.nm.pattern import NMPattern
from sparse_core.nm.pruning.sparsegpt import sparsegpt

#: Rows of an unfolded input held in memory at once.
_CHUNK = 8192


@dataclass(frozen=True)
class CalibratedLayer:
    """One pruned layer.

    Attributes:
        name: dotted name.
        shape: shape of the weight.
        rows: number of input rows seen.
        kept_magnitude: Σ|w| of the kept weights over Σ|w| of all, before pruning.
        output_error: ‖change of the output‖₂ / ‖output without bias‖₂ over the inputs seen.
        damping_used: damping that SparseGPT used.
    """

    name: str
    shape: tuple[int, ...]
    rows: int
    kept_magnitude: float
    output_error: float
    damping_used: float


@dataclass(frozen=True)
class CalibrationReport(Report):
    """Result of :func:`prune_in_one_pass`; ``str(report)`` is a table.

    Attributes:
        layers: pruned layers in the order in which their inputs arrived.
        skipped: reason for each layer that was not pruned.
        masks: bool masks of the weights' shapes by layer name; true where a weight is kept.
    """

    layers: list[CalibratedLayer]
    skipped: dict[str, str]
    masks: dict[str, Tensor] = field(repr=False)

    def tables(self) -> list[Table | str]:
        """Return one row per layer, then the skipped layers."""
        columns: dict[str, Column] = {
            "layer": lambda layer: layer.name or "(model)",
            "shape": "shape",
            "inputs": "rows",
            "kept |w|": "kept_magnitude:.2%",
            "output error": "output_error:.2%",
        }
        return [Table.of(self.layers, columns), left_out(self.skipped)]


def prune_in_one_pass(
    model: nn.Module,
    forward: Callable[[], Any],
    pattern: NMPattern,
    *,
    select: Select = None,
    damping: float = 0.01,
    correct_bias: bool = True,
    progress: bool = False,
) -> CalibrationReport:
    """Prune layers in place with SparseGPT during one forward pass.

    Args:
        model: its Linear, Conv2d, ConvTranspose2d and sparse convolution layers are pruned.
        forward: runs the model once on all calibration inputs as one batch. A layer that is called several
            times is pruned at its first call.
        pattern: n:m. If m does not divide the columns, the last group is padded.
        select: layers to prune, see :data:`sparse_core.common.surgery.Select`.
        damping: damping of SparseGPT.
        correct_bias: add the change of a layer's mean output to its bias.
        progress: show a progress bar.

    Raises:
        ValueError: nothing matches, a convolution has several groups, values are not finite, or the pass does
            not reach some layers (layers before them are already pruned); see also :func:`sparsegpt`.

    Warns:
        CalibrationWarning: SparseGPT needed more damping or more inputs.
    """
    selection = choose_layers(model, COMPRESSIBLE, select)
    grouped = [name for name, module in selection.layers.items() if getattr(module, "groups", 1) != 1]
    if grouped:
        raise ValueError(f"SparseGPT takes no convolution of several groups: deselect {', '.join(grouped)}")
    reports: list[CalibratedLayer] = []
    masks: dict[str, Tensor] = {}
    handles = []
    with Progress(disable=not progress) as bar:
        task = bar.add_task("pruning", total=len(selection.layers))
        for name, module in selection.layers.items():

            def prune_now(module: nn.Module, inputs: tuple[Any, ...], name: str = name) -> None:
                if name in masks:
                    return
                report, masks[name] = _prune(name, module, inputs, pattern, damping, correct_bias)
                reports.append(report)
                bar.advance(task)

            handles.append(module.register_forward_pre_hook(prune_now))
        try:
            with torch.no_grad():
                forward()
        finally:
            for handle in handles:
                handle.remove()
    missed = [name for name in selection.layers if name not in masks]
    if missed:
        raise ValueError(f"the forward pass did not reach {', '.join(missed)}: deselect them")
    return CalibrationReport(reports, selection.skipped, masks)


@torch.no_grad()
def _prune(
    name: str,
    module: nn.Module,
    inputs: tuple[Any, ...],
    pattern: NMPattern,
    damping: float,
    correct_bias: bool,
) -> tuple[CalibratedLayer, Tensor]:
    weight = cast(Tensor, module.weight)
    view = MatrixView(tuple(weight.shape), layout_of(module, pattern.conv_layout))
    hessian = torch.zeros((view.columns, view.columns), dtype=torch.float32, device=weight.device)
    total = torch.zeros(view.columns, dtype=torch.float64, device=weight.device)
    count = 0
    for rows in input_rows(module, inputs, view.layout == "channels_last"):
        wide = rows.float()
        hessian += wide.T @ wide
        total += wide.double().sum(dim=0)
        count += len(rows)
    if not count:
        raise ValueError(f"layer {name or '(model)'} got empty inputs: calibrate with other inputs")
    hessian *= 2 / count
    missing = -view.columns % pattern.m
    before = view.to_matrix(weight.detach()).float().clone()
    result = sparsegpt(
        pad_columns(before, pattern.m),
        F.pad(hessian, (0, missing, 0, missing)),
        NMPattern(pattern.n, pattern.m),
        damping=damping,
        rows=count,
        name=name or "(model)",
    )
    pruned = result.weight[:, : view.columns]
    mask = result.mask[:, : view.columns]
    with torch.no_grad():
        weight.copy_(view.from_matrix(pruned))
    bias = getattr(module, "bias", None)
    if correct_bias and bias is not None:
        lost = (before - pruned).double() @ (total / count)
        # A transposed convolution has a row for each output channel and tap, and one bias for all of them.
        bias.data += lost.reshape(len(bias), -1).mean(dim=1).to(bias.dtype)
    absolute = before.abs().double()
    energy = float(((before @ hessian) * before).sum()) / 2
    report = CalibratedLayer(
        name=name,
        shape=tuple(weight.shape),
        rows=count,
        kept_magnitude=float((absolute * mask).sum() / absolute.sum()) if bool(absolute.any()) else 1.0,
        output_error=(float(result.loss) / energy) ** 0.5 if energy > 0 else 0.0,
        damping_used=result.damping_used,
    )
    return report, view.from_matrix(mask).contiguous()


def input_rows(module: nn.Module, inputs: tuple[Any, ...], channels_last: bool = False) -> Iterator[Tensor]:
    """Yield the rows (rows, columns) that a layer's weight matrix multiplies, in pieces.

    Args:
        module: a layer of :data:`sparse_core.compression.model.COMPRESSIBLE` without groups.
        inputs: arguments of its forward pass.
        channels_last: order the columns of a Conv2d as (kernel height, kernel width, in).
    """
    x = inputs[0]
    if isinstance(module, SPARSE_CONVOLUTIONS):
        yield from _sparse_rows(module, inputs)
    elif x.is_nested:
        # nn.TransformerEncoder drops padding with nested tensors.
        for part in x.unbind():
            yield from input_rows(module, (part, *inputs[1:]), channels_last)
    elif isinstance(module, nn.Conv2d):
        for image in x if x.ndim == 4 else x[None]:
            padding = module._reversed_padding_repeated_twice
            mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
            padded = F.pad(image[None].float(), padding, mode=mode)
            taps = F.unfold(
                padded, cast(Any, module.kernel_size), module.dilation, 0, cast(Any, module.stride)
            )[0]
            if channels_last:
                taps = taps.unflatten(0, (module.in_channels, -1)).transpose(0, 1).flatten(0, 1)
            yield taps.T
    elif isinstance(module, nn.ConvTranspose2d):
        yield from x.movedim(-3, -1).reshape(-1, module.in_channels).split(_CHUNK)
    else:
        yield from x.reshape(-1, x.shape[-1]).split(_CHUNK)


def _sparse_rows(module: nn.Module, inputs: tuple[Any, ...]) -> Iterator[Tensor]:
    given: SparseTensor = inputs[0]
    if isinstance(module, SparseInverseConv2d):
        fine: SparseTensor = inputs[1]
        rows = module.tables(fine)[0].inverse
    else:
        assert isinstance(module, SubmanifoldConv2d | SparseConv2d)
        rows = module.tables(given)[0].rows
    # A tap without a cell has number -1 and reads the row of zeros at the end.
    features = F.pad(given.features, (0, 0, 0, 1))
    for some in rows.T.split(_CHUNK):
        yield features[some].flatten(1)
