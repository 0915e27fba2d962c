"""Linear mode connectivity: the loss on the line between two models."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from rich.console import Console
from rich.progress import track
from torch import nn

from sparse_core.common.files import replacing
from sparse_core.common.surgery import shapes_of
from sparse_core.common.table import Report, Table, cell
from sparse_core.merging.task_vector import State, check_same_tensors, state_of


@dataclass(frozen=True)
class PathLoss(Report):
    """Loss along the straight line between two models.

    Attributes:
        positions: from 0 at the first model to 1 at the second.
        losses: loss at each position.
    """

    positions: tuple[float, ...]
    losses: tuple[float, ...]
    derived: ClassVar = ("barrier", "best")

    @property
    def barrier(self) -> float:
        """Height of the loss above the straight line between both ends (Frankle et al. 2020).

        If it is near zero, both models lie in one basin, where averages work.
        """
        first, last = self.losses[0], self.losses[-1]
        pairs = zip(self.positions, self.losses, strict=True)
        return max(loss - ((1 - place) * first + place * last) for place, loss in pairs)

    @property
    def best(self) -> float:
        """Position with the smallest loss."""
        return min(zip(self.losses, self.positions, strict=True))[1]

    def tables(self) -> list[Table | str]:
        """Return one row per position, and the barrier."""
        pairs = zip(self.positions, self.losses, strict=True)
        rows = [(cell(place, ".3f"), cell(loss, ".4f")) for place, loss in pairs]
        return [Table(("position", "loss"), rows), f"barrier {self.barrier:.4f}"]


@torch.no_grad()
def loss_along_path(
    model: nn.Module,
    first: State,
    second: State,
    loss: Callable[[nn.Module], float],
    *,
    points: int = 11,
    prepare: Callable[[nn.Module], object] | None = None,
    progress: bool = False,
) -> PathLoss:
    """Measure the loss of models on the line between two models.

    Args:
        model: the network; a copy of it is evaluated.
        first: state dict at position 0; its integer tensors are used throughout.
        second: state dict at position 1.
        loss: loss of a model in evaluation mode, smaller is better.
        points: number of evenly spaced positions, both ends included.
        prepare: called with each model before its loss, for example to collect the batch-norm statistics that
            averaged weights need.
        progress: show a progress bar.

    Raises:
        ValueError: fewer than two points, models with other tensors, or a loss that is not finite.
    """
    if points < 2:
        raise ValueError(f"points must be at least 2, got {points}")
    start, end = state_of(first, "the first model"), state_of(second, "the second model")
    check_same_tensors(shapes_of(start), shapes_of(end), "the second model", "the first")
    between = copy.deepcopy(model).eval()
    positions = [index / (points - 1) for index in range(points)]
    losses = []
    for place in track(positions, "path", console=Console(stderr=True), disable=not progress):
        state = {
            name: torch.lerp(value, end[name].to(value.dtype), place) if value.is_floating_point() else value
            for name, value in start.items()
        }
        between.load_state_dict(state)
        if prepare is not None:
            prepare(between)
            between.eval()
        found = float(loss(between))
        if not abs(found) < float("inf"):
            raise ValueError(f"the loss at position {place:.3f} is {found}")
        losses.append(found)
    return PathLoss(tuple(positions), tuple(losses))


def save_path_picture(
    path: str | os.PathLike[str],
    curves: dict[str, PathLoss],
    *,
    ends: Sequence[str] = ("first model", "second model"),
    title: str = "Loss along the path",
) -> Path:
    """Plot losses along a path as a PNG.

    Args:
        path: file to write.
        curves: losses by name in the legend.
        ends: names of the models at both ends.
        title: title of the plot.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: no curves.
    """
    if not curves:
        raise ValueError("no curves to draw")
    from matplotlib.figure import Figure

    colours = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
    figure = Figure(figsize=(7.5, 4.2), dpi=120, layout="constrained")
    axes = figure.subplots()
    for index, (name, curve) in enumerate(curves.items()):
        colour = colours[index % len(colours)]
        axes.plot(curve.positions, curve.losses, marker="o", markersize=4, color=colour, label=name)
        if curve.barrier > 0.02 * max(curve.losses):
            line = (curve.losses[0], curve.losses[-1])
            axes.plot((0, 1), line, color=colour, linewidth=0.9, linestyle=":", alpha=0.7)
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel(f"from {ends[0]} (0) to {ends[1]} (1)")
    axes.set_ylabel("loss")
    axes.set_ylim(bottom=min(0.0, *(min(curve.losses) for curve in curves.values())))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e3e8ee", linewidth=0.8)
    axes.set_axisbelow(True)
    if len(curves) > 1:
        axes.legend(frameon=False, fontsize=9)
    with replacing(Path(path)) as temporary:
        figure.savefig(temporary, format=Path(path).suffix[1:] or "png")
    return Path(path)
