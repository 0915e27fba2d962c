"""PointPillars as other programs define them, under their names: an oracle written from the definition.

One voxel at a time, one anchor at a time where it matters, float32; no code of this project is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass
class Definition:
    """Sizes of a model; ``flavour`` is ``openpcdet``, ``mmdetection3d`` or ``zhulf0804``."""

    flavour: str
    low: tuple[float, float, float] = (0.0, -5.12, -3.0)
    high: tuple[float, float, float] = (10.24, 5.12, 1.0)
    voxel: float = 0.32
    channels: tuple[int, ...] = (8, 12, 16)
    blocks: tuple[int, ...] = (1, 2, 1)
    ups: tuple[int, ...] = (8, 6, 4)
    points: int = 5
    sizes: list[tuple[float, float, float]] = field(
        default_factory=lambda: [(0.8, 0.6, 1.73), (1.76, 0.6, 1.73), (3.9, 1.6, 1.56)]
    )
    bottoms: tuple[float, ...] = (-0.6, -0.6, -1.78)

    @property
    def names(self) -> dict[str, str]:
        keys = ("e", "n", "s", "u", "h", "c")
        encoder, norm, *rest = {
            "openpcdet": (
                "vfe.",
                "vfe.",
                "backbone_2d.blocks",
                "backbone_2d.deblocks",
                "dense_head",
                "conv_box",
            ),
            "mmdetection3d": (
                *("voxel_encoder.", "voxel_encoder.", "backbone.blocks", "neck.deblocks", "bbox_head"),
                "conv_reg",
            ),
            "zhulf0804": (
                *("pillar_encoder.conv", "pillar_encoder.bn", "backbone.multi_blocks", "neck.decoder_blocks"),
                *("head", "conv_reg"),
            ),
        }[self.flavour]
        if self.flavour != "zhulf0804":
            encoder, norm = f"{encoder}pfn_layers.0.linear", f"{norm}pfn_layers.0.norm"
        return dict(zip(keys, (encoder, norm, *rest), strict=True))


def random_state(model: Definition, seed: int) -> dict[str, Tensor]:
    """A state dict of random numbers, in the shapes and under the names of the program."""
    torch.manual_seed(seed)
    names, state = model.names, {}

    def norm(name: str, width: int) -> None:
        state[f"{name}.weight"], state[f"{name}.bias"] = torch.rand(width) + 0.5, torch.randn(width) * 0.2
        state[f"{name}.running_mean"], state[f"{name}.running_var"] = (
            torch.randn(width) * 0.1,
            torch.rand(width) + 0.5,
        )
        state[f"{name}.num_batches_tracked"] = torch.tensor(7)

    features = 10 if model.flavour == "openpcdet" else 9
    width = model.channels[0]
    state[f"{names['e']}.weight"] = torch.randn(width, features) * 0.3
    if model.flavour == "zhulf0804":
        state[f"{names['e']}.weight"] = state[f"{names['e']}.weight"][..., None]
    norm(names["n"], width)
    first = 1 if model.flavour == "openpcdet" else 0
    for stage, channels in enumerate(model.channels):
        for block in range(model.blocks[stage] + 1):
            place = f"{names['s']}.{stage}.{first + 3 * block}"
            state[f"{place}.weight"] = torch.randn(channels, width, 3, 3) / math.sqrt(9 * width)
            norm(f"{names['s']}.{stage}.{first + 3 * block + 1}", channels)
            width = channels
        up = model.ups[stage]
        state[f"{names['u']}.{stage}.0.weight"] = torch.randn(channels, up, 2**stage, 2**stage) / math.sqrt(
            channels
        )
        norm(f"{names['u']}.{stage}.1", up)
    classes = len(model.sizes)
    for name, each in (("conv_cls", classes), (names["c"], 7), ("conv_dir_cls", 2)):
        state[f"{names['h']}.{name}.weight"] = torch.randn(2 * classes * each, sum(model.ups), 1, 1) * 0.3
        state[f"{names['h']}.{name}.bias"] = torch.randn(2 * classes * each) * 0.3
    return state


def forward(model: Definition, state: dict[str, Tensor], points: np.ndarray) -> tuple[Tensor, Tensor]:
    """Boxes (A, 7) x, y, z centre, l, w, h, yaw of all anchors, and scores (A, classes)."""
    names = model.names

    def norm(name: str, values: Tensor) -> Tensor:
        parts = (state[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return F.relu(F.batch_norm(values, *parts, eps=1e-3))

    canvas = _canvas(model, state, points, norm)
    first, raised = (1 if model.flavour == "openpcdet" else 0), []
    for stage in range(3):
        for block in range(model.blocks[stage] + 1):
            place = first + 3 * block
            weight = state[f"{names['s']}.{stage}.{place}.weight"]
            made = F.conv2d(F.pad(canvas, (1, 1, 1, 1)), weight, stride=2 if block == 0 else 1)
            canvas = norm(f"{names['s']}.{stage}.{place + 1}", made)
        up = F.conv_transpose2d(canvas, state[f"{names['u']}.{stage}.0.weight"], stride=2**stage)
        raised.append(norm(f"{names['u']}.{stage}.1", up))
    features = torch.cat(raised, 1)

    def head(name: str, width: int) -> Tensor:
        place = f"{names['h']}.{name}"
        made = F.conv2d(features, state[f"{place}.weight"], state[f"{place}.bias"])
        return made[0].permute(1, 2, 0).reshape(-1, width)

    scores, codes, turns = head("conv_cls", len(model.sizes)), head(names["c"], 7), head("conv_dir_cls", 2)
    boxes = _boxes(model, features.shape[2:], codes.double(), turns.argmax(1))
    return boxes, torch.sigmoid(scores)


def voxels_of(model: Any, points: np.ndarray) -> tuple[dict[tuple[int, int], list[np.ndarray]], Any]:
    """Points by row and column, in their order; columns, rows and layers, one over all heights."""
    voxels: dict[tuple[int, int], list[np.ndarray]] = {}
    low, size = np.float32(model.low), [model.voxel, model.voxel, model.high[2] - model.low[2]]
    shape = np.round((np.array(model.high) - model.low) / size).astype(int)
    for point in points:
        if not np.isfinite(point).all():
            continue
        cell = np.floor((point[:3] - low) / np.float32(size)).astype(int)
        if (cell >= 0).all() and (cell < shape).all():
            voxels.setdefault((cell[1], cell[0]), []).append(point)
    return voxels, shape


def _canvas(model: Definition, state: dict[str, Tensor], points: np.ndarray, norm: Any) -> Tensor:
    low = np.float32(model.low)
    voxels, shape = voxels_of(model, points)
    columns, rows = shape[:2]
    canvas = torch.zeros(1, model.channels[0], rows, columns)
    weight = state[f"{model.names['e']}.weight"].flatten(1)
    for (row, column), inside in voxels.items():
        held = torch.tensor(np.array(inside[: model.points]))
        middle = torch.tensor(
            [
                (column + 0.5) * model.voxel + low[0],
                (row + 0.5) * model.voxel + low[1],
                (model.low[2] + model.high[2]) / 2,
            ]
        )
        mean, centre = held[:, :3] - held[:, :3].mean(0), held[:, :3] - middle
        if model.flavour == "openpcdet":
            decorated = torch.cat([held, mean, centre], 1)
        else:
            decorated = torch.cat([centre[:, :2], held[:, 2:], mean, centre[:, :2]], 1)
        padded = torch.zeros(model.points, decorated.shape[1])
        padded[: len(held)] = decorated
        canvas[0, :, row, column] = norm(model.names["n"], padded.float() @ weight.T).amax(0)
    return canvas


def _boxes(model: Definition, shape: Any, codes: Tensor, turns: Tensor) -> Tensor:
    rows, columns = shape
    boxes = []
    low, high = np.array(model.low[:2]), np.array(model.high[:2])
    number = 0
    for row in range(rows):
        for column in range(columns):
            for size, bottom in zip(model.sizes, model.bottoms, strict=True):
                for rotation in (0.0, 1.57):
                    if model.flavour == "openpcdet":
                        spot = low + np.array([column, row]) * (high - low) / [columns - 1, rows - 1]
                    else:
                        spot = low + (np.array([column, row]) + 0.5) * (high - low) / [columns, rows]
                    boxes.append(
                        _box(model, spot, size, bottom, rotation, codes[number].tolist(), int(turns[number]))
                    )
                    number += 1
    return torch.tensor(boxes)


def _box(
    model: Definition, spot: Any, size: Any, bottom: float, rotation: float, code: list[float], turn: int
) -> list[float]:
    length, width, height = size
    diagonal = math.hypot(length, width)
    x, y = spot[0] + code[0] * diagonal, spot[1] + code[1] * diagonal
    z = bottom + height / 2 + code[2] * height
    if model.flavour == "zhulf0804":
        # Width along x first; yaws clockwise from -y: theta in [-pi, 0), and half a turn for direction 0.
        width, length = width * math.exp(code[3]), length * math.exp(code[4])
    else:
        length, width = length * math.exp(code[3]), width * math.exp(code[4])
    height *= math.exp(code[5])
    angle = rotation + code[6]

    def limited(value: float, offset: float, period: float) -> float:
        return value - math.floor(value / period + offset) * period

    if model.flavour == "openpcdet":
        yaw = limited(angle - 0.78539, 0.0, math.pi) + 0.78539 + math.pi * turn
    elif model.flavour == "mmdetection3d":
        yaw = limited(angle + math.pi / 2, 0.0, math.pi) - math.pi / 2 + math.pi * turn
    else:
        theta = limited(angle, 1.0, math.pi) + (1 - turn) * math.pi
        yaw = -theta - math.pi / 2
    return [x, y, z, length, width, height, yaw]
