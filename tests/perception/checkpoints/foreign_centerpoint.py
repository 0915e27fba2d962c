"""CenterPoint with pillars as OpenPCDet defines it, under its names: an oracle written from the definition.

One voxel at a time, one box at a time, float32; no code of this project is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from foreign_pointpillars import voxels_of
from torch import Tensor
from torch.nn import functional as F

BRANCHES = {"center": 2, "center_z": 1, "dim": 3, "rot": 2}


@dataclass
class Definition:
    """Sizes of a model."""

    low: tuple[float, float, float] = (-5.12, -5.12, -2.0)
    high: tuple[float, float, float] = (5.12, 5.12, 4.0)
    voxel: float = 0.32
    filters: tuple[int, ...] = (12, 8)
    channels: tuple[int, ...] = (8, 12, 16)
    blocks: tuple[int, ...] = (1, 2, 1)
    strides: tuple[int, ...] = (1, 2, 2)
    ups: tuple[int, ...] = (8, 6, 4)
    up_strides: tuple[float, ...] = (1, 2, 4)
    points: int = 5
    features: int = 4
    absolute: bool = True
    shared: int = 10
    bias: bool = True
    heat_layers: int = 2
    groups: tuple[tuple[str, ...], ...] = (("Vehicle", "Pedestrian", "Cyclist"),)
    classes: tuple[str, ...] = ("Vehicle", "Pedestrian", "Cyclist")
    speeds: bool = False
    sweeps: int = 1
    limits: tuple[float, ...] = (-4.5, -5.0, -1.5, 5.0, 4.8, 2.0)
    most: int = 60
    threshold: float = 0.8
    overlap: float = 0.2
    kept: int = 25

    @property
    def stride(self) -> int:
        """Pillars a cell of the map."""
        return round(self.strides[0] / self.up_strides[0])

    @property
    def branches(self) -> dict[str, int]:
        """Widths of the branches of a group but for its heat."""
        return BRANCHES | ({"vel": 2} if self.speeds else {})


class Boxes(NamedTuple):
    """Of one group, in the order of scores: boxes (K, 7) float64, scores and classes (K,), velocities."""

    boxes: Tensor
    scores: Tensor
    labels: list[str]
    velocities: Tensor


def random_state(model: Definition, seed: int) -> dict[str, Tensor]:
    """A state dict of random numbers, in the shapes and under the names of the program."""
    torch.manual_seed(seed)
    state: dict[str, Tensor] = {}

    def norm(name: str, width: int) -> None:
        state[f"{name}.weight"], state[f"{name}.bias"] = torch.rand(width) + 0.5, torch.randn(width) * 0.2
        state[f"{name}.running_mean"] = torch.randn(width) * 0.1
        # Small ones too, where the epsilon counts.
        state[f"{name}.running_var"] = torch.rand(width) + 0.02
        state[f"{name}.num_batches_tracked"] = torch.tensor(7)

    def conv(name: str, before: int, after: int, size: int, bias: bool) -> None:
        state[f"{name}.weight"] = torch.randn(after, before, size, size) / (size * math.sqrt(before))
        if bias:
            state[f"{name}.bias"] = torch.randn(after) * 0.3

    width = model.features + 6 - (0 if model.absolute else 3)
    for number, filters in enumerate(model.filters):
        last = number == len(model.filters) - 1
        made = filters if last else filters // 2
        state[f"vfe.pfn_layers.{number}.linear.weight"] = torch.randn(made, width) * 0.3
        norm(f"vfe.pfn_layers.{number}.norm", made)
        width = filters
    for stage, channels in enumerate(model.channels):
        for block in range(model.blocks[stage] + 1):
            conv(f"backbone_2d.blocks.{stage}.{1 + 3 * block}", width, channels, 3, False)
            norm(f"backbone_2d.blocks.{stage}.{2 + 3 * block}", channels)
            width = channels
        up, stride = model.ups[stage], model.up_strides[stage]
        place = f"backbone_2d.deblocks.{stage}"
        if stride >= 1:
            size = int(stride)
            state[f"{place}.0.weight"] = torch.randn(channels, up, size, size) / math.sqrt(channels)
        else:
            conv(f"{place}.0", channels, up, round(1 / stride), False)
        norm(f"{place}.1", up)
    conv("dense_head.shared_conv.0", sum(model.ups), model.shared, 3, model.bias)
    norm("dense_head.shared_conv.1", model.shared)
    for group, classes in enumerate(model.groups):
        for name, out in (*model.branches.items(), ("hm", len(classes))):
            place = f"dense_head.heads_list.{group}.{name}"
            layers = model.heat_layers if name == "hm" else 2
            for layer in range(layers - 1):
                conv(f"{place}.{layer}.0", model.shared, model.shared, 3, model.bias)
                norm(f"{place}.{layer}.1", model.shared)
            conv(f"{place}.{layers - 1}", model.shared, out, 3, True)
            # Sizes are exponentials of what it gives, up to some ten metres.
            state[f"{place}.{layers - 1}.weight"] *= 0.1 if name == "hm" else 0.04
    return state


def outputs(model: Definition, state: dict[str, Tensor], points: np.ndarray) -> list[dict[str, Tensor]]:
    """What the branches of each group give: (C, H, W) each."""

    def norm(name: str, values: Tensor, eps: float) -> Tensor:
        parts = (state[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return F.relu(F.batch_norm(values, *parts, eps=eps))

    canvas = _canvas(model, state, points, norm)
    raised = []
    for stage in range(3):
        for block in range(model.blocks[stage] + 1):
            weight = state[f"backbone_2d.blocks.{stage}.{1 + 3 * block}.weight"]
            stride = model.strides[stage] if block == 0 else 1
            canvas = F.conv2d(F.pad(canvas, (1, 1, 1, 1)), weight, stride=stride)
            canvas = norm(f"backbone_2d.blocks.{stage}.{2 + 3 * block}", canvas, 1e-3)
        weight, stride = state[f"backbone_2d.deblocks.{stage}.0.weight"], model.up_strides[stage]
        if stride >= 1:
            up = F.conv_transpose2d(canvas, weight, stride=int(stride))
        else:
            up = F.conv2d(canvas, weight, stride=round(1 / stride))
        raised.append(norm(f"backbone_2d.deblocks.{stage}.1", up, 1e-3))

    def conv(name: str, values: Tensor) -> Tensor:
        return F.conv2d(values, state[f"{name}.weight"], state.get(f"{name}.bias"), padding=1)

    place = "dense_head.shared_conv"
    shared = norm(f"{place}.1", conv(f"{place}.0", torch.cat(raised, 1)), 1e-5)
    groups = []
    for group in range(len(model.groups)):
        made = {}
        for name in (*model.branches, "hm"):
            place, values = f"dense_head.heads_list.{group}.{name}", shared
            layers = model.heat_layers if name == "hm" else 2
            for layer in range(layers - 1):
                values = norm(f"{place}.{layer}.1", conv(f"{place}.{layer}.0", values), 1e-5)
            made[name] = conv(f"{place}.{layers - 1}", values)[0]
        groups.append(made)
    return groups


def found(model: Definition, state: dict[str, Tensor], points: np.ndarray) -> list[Boxes]:
    """The boxes of each group that are left before any suppress each other."""
    groups = []
    for classes, made in zip(model.groups, outputs(model, state, points), strict=True):
        scores = torch.sigmoid(made["hm"])
        _, rows, columns = scores.shape
        hottest = scores.flatten().argsort(descending=True, stable=True)[: model.most].tolist()
        boxes, kept, labels, speeds = [], [], [], []
        for place in hottest:
            number, row, column = (
                place // (rows * columns),
                place // columns % rows,
                place % columns,
            )
            centre, size, turn, height = (
                made[name][:, row, column].double().tolist() for name in ("center", "dim", "rot", "center_z")
            )
            x = (column + centre[0]) * model.stride * model.voxel + model.low[0]
            y = (row + centre[1]) * model.stride * model.voxel + model.low[1]
            spot, score = [x, y, height[0]], float(scores[number, row, column])
            inside = all(
                low <= value <= high
                for value, low, high in zip(spot, model.limits[:3], model.limits[3:], strict=True)
            )
            if score > model.threshold and inside:
                yaw = math.atan2(turn[1], turn[0])
                boxes.append([*spot, *(math.exp(value) for value in size), yaw])
                kept.append(score)
                labels.append(classes[number])
                speeds.append(made["vel"][:, row, column].tolist() if model.speeds else [0.0, 0.0])
        velocities = torch.tensor(speeds).view(-1, 2)
        groups.append(Boxes(torch.tensor(boxes).double().view(-1, 7), torch.tensor(kept), labels, velocities))
    return groups


def _canvas(model: Definition, state: dict[str, Tensor], points: np.ndarray, norm: Any) -> Tensor:
    voxels, shape = voxels_of(model, points)
    canvas = torch.zeros(1, model.filters[-1], shape[1], shape[0])
    for (row, column), inside in voxels.items():
        held = torch.tensor(np.array(inside[: model.points]))
        middle = torch.tensor(
            [
                column * model.voxel + model.voxel / 2 + model.low[0],
                row * model.voxel + model.voxel / 2 + model.low[1],
                (model.low[2] + model.high[2]) / 2,
            ]
        )
        own = held if model.absolute else held[:, 3:]
        decorated = torch.cat([own, held[:, :3] - held[:, :3].mean(0), held[:, :3] - middle], 1)
        values = torch.zeros(model.points, decorated.shape[1])
        values[: len(held)] = decorated
        for number in range(len(model.filters)):
            place = f"vfe.pfn_layers.{number}"
            values = norm(f"{place}.norm", values @ state[f"{place}.linear.weight"].T, 1e-3)
            if number < len(model.filters) - 1:
                values = torch.cat([values, values.amax(0).expand_as(values)], 1)
        canvas[0, :, row, column] = values.amax(0)
    return canvas
