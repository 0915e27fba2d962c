"""Permute the channels of a whole model so that n:m pruning keeps more and the output stays the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.progress import track
from torch import Tensor, nn

from sparse_core.common.surgery import Select, selector
from sparse_core.common.table import Column, Report, Table, cell
from sparse_core.nm.forward_pass import call_model, evaluation_mode
from sparse_core.nm.pattern import TWO_FOUR, NMPattern, weight_matrix
from sparse_core.nm.permutation.axes import Axis, Segment
from sparse_core.nm.permutation.graph import ChannelGraph
from sparse_core.nm.permutation.search import Effort, permute_channels
from sparse_core.nm.permutation.stripes import matrix_retained


@dataclass(frozen=True)
class ChannelGroup:
    """Channels that must be permuted together, or cannot be permuted.

    Attributes:
        name: first layer that reads them, with its columns if it also reads others.
        channels: number of channels.
        consumers: layers with these channels as columns, searched together.
        producers: other parameters and buffers with these channels.
        retained_before: magnitude that n:m pruning keeps of all weights read by consumers.
        retained: the same after the permutation.
        reason: why nothing was permuted; None if something was.
    """

    name: str
    channels: int
    consumers: tuple[str, ...]
    producers: tuple[str, ...]
    retained_before: float
    retained: float
    reason: str | None


@dataclass(frozen=True)
class PermutationReport(Report):
    """Result of :func:`~sparse_core.nm.permutation.model.permute_model`.

    Attributes:
        groups: groups of tied channels that a selected layer reads.
        permutations: (channels,) int64 by the name of the group: new channel i is the old ``permutation[i]``.
        largest_change: largest difference of the outputs for the example, before and after.
        tracer: ``"torch.fx"`` or ``"torch.export"``.
    """

    groups: list[ChannelGroup]
    permutations: dict[str, Tensor] = field(default_factory=dict)
    largest_change: float = 0.0
    tracer: str = "torch.fx"

    def tables(self) -> list[Table | str]:
        """Return one row per group."""
        columns: dict[str, Column] = {
            "channels of": "name",
            "count": "channels",
            "kept before": "retained_before:.3f",
            "kept after": "retained:.3f",
            "change": _change,
            "read by / why not": lambda group: group.reason or ", ".join(group.consumers),
        }
        return [Table.of(self.groups, columns)]


def _change(group: ChannelGroup) -> str:
    return cell(group.retained / group.retained_before - 1 if group.retained_before else 0.0, "+.2%")


def permute_model(
    model: nn.Module,
    example_inputs: Any,
    pattern: NMPattern = TWO_FOUR,
    *,
    select: Select = None,
    seed: int = 0,
    effort: Effort = "default",
    progress: bool = False,
) -> PermutationReport:
    """Permute tied channels of ``model`` in place, so that n:m pruning keeps more of its weights.

    The forward pass is traced. Channels are followed from the layers that produce them through activations,
    normalisation, pooling, flattening, residual sums and concatenations to the layers that read them, as in
    Pool and Yu, "Channel Permutations for N:M Sparsity" (NeurIPS 2021). Layers that read the same channels
    are searched together.

    Channels keep their order if something depends on it (inputs and outputs of the model, heads of attention,
    unknown operations); the report gives the reason. A convolution is searched if a group of m weights lies
    along its channels: kernels of 1x1, or ``NMPattern(n, m, conv_layout="channels_last")``. Gradients and an
    optimiser's state are not permuted, so permute before training starts or resumes.

    Args:
        model: its parameters and buffers are permuted in place; hooks and modes do not change.
        example_inputs: a tensor, a tuple of positional arguments or a dict of named ones.
        pattern: n, m and the layout of convolutions.
        select: layers that count: a function of name and module, or a regular expression for the name; all
            Linear and Conv2d by default. Others are permuted along if necessary.
        seed: seed of the search.
        effort: effort of the search, see :func:`permute_channels`.
        progress: show a progress bar.

    Returns:
        Groups with the magnitudes kept before and after, and the permutations.

    Raises:
        ValueError: no layer matches, or the model cannot be traced; nothing has changed.
        RuntimeError: the output for the example changed by more than rounding, for example because the
            forward pass is random or not finite; the model is restored.
    """
    layers = _layers(model, pattern, select)
    with evaluation_mode(model), torch.no_grad():
        before = _outputs(model, example_inputs)
        graph = ChannelGraph(model, example_inputs)
        worker = _ChannelPermuter(graph, layers, pattern)
        groups, permutations, undo = [], {}, []
        variables = worker.variables()
        for variable in track(variables, "permuting", disable=not progress):
            group, order = worker.permute(variable, seed=seed, effort=effort)
            groups.append(group)
            if order is not None:
                permutations[group.name] = order
                undo.append((variable, order))
        after = _outputs(model, example_inputs)
        changes = _changes(before, after)
        # The negated comparison makes NaN count as a change.
        beyond = [change for change, allowed in changes if not change <= allowed]
        if beyond:
            for variable, order in reversed(undo):
                worker.apply(variable, order.argsort())
            raise RuntimeError(
                f"an output of {type(model).__name__} changed by {beyond[0]:.3g}, more than rounding"
                " explains; the permutation was reverted. Is the forward pass random, or does its code depend"
                " on channel numbers?"
            )
    change = max((change for change, _ in changes), default=0.0)
    return PermutationReport(groups, permutations, change, graph.tracer)


class _ChannelPermuter:
    def __init__(
        self, graph: ChannelGraph, layers: dict[str, nn.Linear | nn.Conv2d], pattern: NMPattern
    ) -> None:
        self.graph = graph
        self.pattern = pattern
        self.axes: dict[str, list[Axis]] = {
            name: [graph.system.resolve(axis) for axis in value.axes] for name, value in graph.values.items()
        }
        names = {id(tensor): name for name, tensor in graph.tensors.items()}
        # A tied weight is listed only under its first name.
        self.layers = {
            name: (layer, names[id(layer.weight)])
            for name, layer in layers.items()
            if id(layer.weight) in names
        }

    def variables(self) -> list[int]:
        """Return the variables in columns of selected layers, in the order of the layers."""
        found: dict[int, None] = {}
        for _, tensor in self.layers.values():
            found.update((segment.variable, None) for segment in self.axes[tensor][1])
        return list(found)

    def permute(self, variable: int, *, seed: int, effort: Effort) -> tuple[ChannelGroup, Tensor | None]:
        """Search one variable and apply the result; the order is None if nothing was found."""
        readers = {
            name: tensor
            for name, (_, tensor) in self.layers.items()
            if any(segment.variable == variable for segment in self.axes[tensor][1])
        }
        matrices = [matrix for name in readers for matrix in self._columns(name, variable)]
        reason = self.graph.system.locks.get(variable) or self._unsearchable(variable, matrices)
        before = after = self._retained(readers)
        order = None
        if reason is None:
            found = permute_channels(
                torch.cat([matrix.to(matrices[0].device) for matrix in matrices]),
                self.pattern,
                seed=seed,
                effort=effort,
            )
            order = found.permutation
            self.apply(variable, order)
            after = self._retained(readers)
            if after <= before:
                self.apply(variable, order.argsort())
                reason, after, order = "no order was found that keeps more", before, None
        producers = [
            name
            for name, axes in self.axes.items()
            if name not in readers.values() or any(part.variable == variable for part in axes[0])
            if any(part.variable == variable for axis in axes for part in axis)
        ]
        size = self.graph.system.sizes[variable]
        group = ChannelGroup(
            self._name(variable, readers), size, tuple(readers), tuple(producers), before, after, reason
        )
        return group, order

    def apply(self, variable: int, order: Tensor) -> None:
        """Permute every dimension of every tensor that has channels of ``variable``."""
        for name, axes in self.axes.items():
            tensor = self.graph.tensors[name]
            for dim, axis in enumerate(axes):
                if any(segment.variable == variable for segment in axis):
                    index = self._index(axis, variable, order).to(tensor.device)
                    tensor.copy_(tensor.index_select(dim, index))

    def _index(self, axis: Axis, variable: int, order: Tensor) -> Tensor:
        parts, start = [], 0
        for segment in axis:
            width = self.graph.system.width(segment)
            positions = torch.arange(start, start + width, device=order.device)
            if segment.variable == variable:
                positions = positions.reshape(-1, segment.inner)[order].flatten()
            parts.append(positions)
            start += width
        return torch.cat(parts)

    def _columns(self, name: str, variable: int) -> Iterator[Tensor]:
        """Yield (rows, channels) matrices of a layer in which a permutation moves single columns."""
        layer, tensor = self.layers[name]
        weight = layer.weight.detach()
        if weight.ndim == 4 and weight.shape[2:] != (1, 1) and self.pattern.conv_layout == "unfold":
            return
        start = 0
        for segment in self.axes[tensor][1]:
            width = self.graph.system.width(segment)
            aligned = start % self.pattern.m == 0 and width % self.pattern.m == 0
            if segment.variable == variable and segment.inner == 1 and aligned:
                yield weight.narrow(1, start, width).movedim(1, -1).reshape(-1, width).float()
            start += width

    def _unsearchable(self, variable: int, matrices: list[Tensor]) -> str | None:
        if self.graph.system.sizes[variable] % self.pattern.m:
            return f"{self.graph.system.sizes[variable]} channels are not divisible by m={self.pattern.m}"
        if not matrices:
            return "no layer has groups along these channels (kernels in unfold order, or flattened maps)"
        return None

    def _retained(self, readers: dict[str, str]) -> float:
        total = 0.0
        for name in readers:
            matrix = weight_matrix(self.layers[name][0].weight.detach(), self.pattern.conv_layout)
            total += matrix_retained(matrix, self.pattern.n, self.pattern.m)
        return total

    def _name(self, variable: int, readers: dict[str, str]) -> str:
        name, tensor = next(iter(readers.items()))
        axis = self.axes[tensor][1]
        if axis == (Segment(variable, axis[0].inner),):
            return name
        start = 0
        for segment in axis:
            width = self.graph.system.width(segment)
            if segment.variable == variable:
                return f"{name}[{start}:{start + width}]"
            start += width
        return name


def _layers(model: nn.Module, pattern: NMPattern, select: Select) -> dict[str, nn.Linear | nn.Conv2d]:
    chosen = selector(select)
    known, layers = [], {}
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear | nn.Conv2d):
            continue
        known.append(name)
        columns = module.weight.shape[1:].numel()
        if chosen(name, module) and columns % pattern.m == 0:
            layers[name] = module
    if not layers:
        raise ValueError(
            f"no Linear or Conv2d matches whose input dimension is divisible by m={pattern.m};"
            f" the model has {', '.join(known) or 'none'}"
        )
    return layers


def _outputs(model: nn.Module, example_inputs: Any) -> list[Tensor]:
    leaves = torch.utils._pytree.tree_leaves(call_model(model, example_inputs))
    return [leaf.detach().clone() for leaf in leaves if isinstance(leaf, Tensor)]


def _changes(before: list[Tensor], after: list[Tensor]) -> list[tuple[float, float]]:
    """Return for each output its largest change and the change that rounding explains."""
    changes = []
    for old, new in zip(before, after, strict=True):
        if old.numel() == 0:
            continue
        epsilon = torch.finfo(old.dtype).eps if old.is_floating_point() else 0.0
        magnitude = max(1.0, old.double().abs().max().item())
        changes.append(((new.double() - old.double()).abs().max().item(), epsilon**0.5 * magnitude))
    return changes
