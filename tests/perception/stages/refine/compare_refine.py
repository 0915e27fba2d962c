"""Compare a fixed refinement step in Triton with the reference on one device; prints a JSON report.

Run on its own by test_fixed_refine_triton.py, because Triton decides at import whether it interprets kernels.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
import triton
from torch import Tensor, nn

from perception.config import PillarConfig, RefineConfig
from perception.model.refine import RefineStage
from perception.stages.pillars import fixed_pillars
from perception.stages.pillars.types import FixedPillars
from perception.stages.refine import (
    PackedRefine,
    RefinedBoxes,
    RefineTiles,
    RefineWorkspace,
    fixed_refine,
    pack_refine,
)
from perception.stages.refine.crop_triton import crop_kernel

GRID = PillarConfig(range_m=(-3.0, -5.12, -3.0, 9.8, 5.12, 3.0), pillar_size_m=0.32)
#: Points with a fifth column.
AGED = replace(GRID, sweeps=2)
MAP_SHAPE = (8, 10)
FRAMES = 2


def make_stage(channels: tuple[int, ...], map_channels: int, classes: int, columns: int = 4) -> RefineStage:
    """A step whose outputs matter: no zero biases, batch norms that do something."""
    generator = torch.Generator().manual_seed(0)
    stage = RefineStage(
        RefineConfig(channels=channels, margin_m=0.4),
        classes=classes,
        map_channels=map_channels,
        grid=GRID.grid.coarser(4),
        columns=columns,
    )
    for part in stage.modules():
        if isinstance(part, nn.BatchNorm1d):
            for tensor in (part.weight, part.running_var):
                assert tensor is not None
                tensor.data.uniform_(0.5, 1.5, generator=generator)
            for tensor in (part.bias, part.running_mean):
                assert tensor is not None
                tensor.data.uniform_(-0.2, 0.2, generator=generator)
        elif isinstance(part, nn.Linear):
            part.weight.data.normal_(generator=generator).mul_((2 / part.in_features) ** 0.5)
    stage.out.weight.data.mul_(0.02)
    return stage.eval()


def make_points(count: int, columns: int = 4) -> tuple[Tensor, Tensor]:
    """(B, P, C) points of frames of different lengths; one corner is dense."""
    generator = torch.Generator().manual_seed(1)
    low, high = torch.tensor(GRID.range_m[:3]), torch.tensor(GRID.range_m[3:])
    points = torch.rand(FRAMES, count, columns, generator=generator)
    points[..., :3] = points[..., :3] * (high - low) + low
    points[:, ::3, :2] = points[:, ::3, :2] * 0.05 + torch.tensor([4.0, 1.0])
    return points, torch.tensor([count, count // 3], dtype=torch.int32)


def make_boxes(count: int, classes: int) -> tuple[Tensor, Tensor]:
    """(B, K, 7) and (B, K): in, over the edge of and far from the grid, some absent, one beyond measure."""
    generator = torch.Generator().manual_seed(2)
    boxes = torch.rand(FRAMES, count, 7, generator=generator)
    boxes[..., :2] = boxes[..., :2] * torch.tensor([12.8, 10.24]) + torch.tensor([-3.0, -5.12])
    boxes[..., 2] -= 0.5
    boxes[..., 3:6] = boxes[..., 3:6] * 3 + 0.4
    boxes[..., 6] = boxes[..., 6] * 20 - 10
    boxes[0, 0, :2] = torch.tensor([4.1, 1.1])
    boxes[0, 1:2, :2] = 500.0
    boxes[0, 2:3, 3:5] = 40.0
    boxes[0, 3:4, 6] = 0.0
    boxes[0, 4:5, 6] = torch.pi / 2
    labels = torch.randint(0, classes, (FRAMES, count), generator=generator).int()
    labels[:, 5::4] = -1
    boxes[:, 5::4] = torch.nan
    return boxes, labels


def numbers(result: RefinedBoxes) -> Tensor:
    """(B, M, 9) everything but the labels."""
    return torch.cat([result.boxes, result.fit_logits[..., None], result.flip_logits[..., None]], dim=2)


def _without_yaw(result: RefinedBoxes) -> Tensor:
    found = numbers(result)
    return torch.cat([found[..., :6], found[..., 7:]], dim=2)


def with_poison(pillars: FixedPillars) -> FixedPillars:
    """What a kernel may not read is NaN."""
    points = pillars.points.clone()
    points[int(pillars.kept) :] = torch.nan
    return replace(pillars, points=points)


def shuffled(pillars: FixedPillars) -> FixedPillars:
    """Another order within the pillars."""
    points, offsets = pillars.points.clone(), pillars.offsets.tolist()
    for start, end in pairwise(offsets):
        points[start:end] = points[start:end].flip(0)
    return replace(pillars, points=points)


def compare(
    pillars: FixedPillars,
    stage: RefineStage,
    boxes: Tensor,
    labels: Tensor,
    dtype: torch.dtype,
    *,
    tiles: RefineTiles | None,
    indices: Tensor | None = None,
) -> dict[str, Any]:
    """Errors against the reference, and whether what must be the same to the bit is."""
    weights: PackedRefine = pack_refine(stage, dtype=dtype, device=boxes.device)
    cells = FRAMES * MAP_SHAPE[0] * MAP_SHAPE[1]
    features = torch.randn(cells, weights.map_channels, generator=torch.Generator().manual_seed(3))
    features = features.to(boxes.device, dtype)
    count = (labels if indices is None else indices).numel()
    workspace = RefineWorkspace.make(count, weights)
    workspace.context.fill_(torch.nan)

    def refined(of: FixedPillars, impl: Any, turn: bool = True, room: Any = workspace) -> RefinedBoxes:
        return fixed_refine(
            of,
            features,
            boxes,
            labels,
            weights,
            map_shape=MAP_SHAPE,
            pillar_size_m=GRID.pillar_size_m,
            indices=indices,
            turn=turn,
            workspace=room,
            tiles=tiles,
            impl=impl,
        )

    expected, found = refined(pillars, "reference"), refined(pillars, "triton")
    unturned = refined(shuffled(pillars), "triton", turn=False, room=None)
    wanted = numbers(expected)
    difference = (numbers(found) - wanted).abs() / wanted.abs().amax(dim=(0, 1)).clamp(min=1.0)
    turned = found.boxes[..., 6] - unturned.boxes[..., 6]
    flipped = found.flip_logits > 0
    return {
        "labels": torch.equal(found.labels, expected.labels),
        "finite": bool(numbers(found).isfinite().all()),
        "repeats in any order": torch.equal(_without_yaw(found), _without_yaw(unturned)),
        "workspace is clean": not any(
            bool(part.any()) for part in (workspace.pooled, workspace.counts, workspace.arrivals)
        ),
        "turns": torch.allclose(turned, torch.where(flipped, torch.pi, 0.0), atol=1e-5),
        "changes boxes": float((found.boxes - boxes.nan_to_num())[found.labels >= 0].abs().max())
        if indices is None
        else 1.0,
        "absent are zero": not bool(numbers(found)[found.labels < 0].any()),
        "error": float(difference.max()),
    }


def main() -> None:
    """Report on the device of the first argument; the second is the number of points of a frame."""
    device, size = torch.device(sys.argv[1]), int(sys.argv[2])
    points, lengths = (tensor.to(device) for tensor in make_points(size))
    pillars = with_poison(fixed_pillars(points, lengths, GRID, 1000, impl="reference"))
    few = with_poison(fixed_pillars(points, lengths, GRID, 150, impl="reference"))
    wide, narrow = make_stage((64, 128, 256), 96, 3), make_stage((16, 24, 40), 20, 1)
    report: dict[str, Any] = {"interpreted": not isinstance(crop_kernel, triton.JITFunction), "cases": {}}
    cases = report["cases"]
    # The interpreter takes seconds for what a GPU does in microseconds, and about as long for any program.
    interpreted = device.type == "cpu"
    sliced = RefineTiles(parts=2, rows=4, length=32, points=32, columns=16, programs=6, head_columns=128)
    small = sliced._replace(samples=128) if interpreted else sliced
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        if interpreted and dtype == torch.bfloat16:
            continue
        if not interpreted or dtype == torch.float16:
            boxes, labels = (tensor.to(device) for tensor in make_boxes(2 if interpreted else 30, 3))
            tiles = RefineTiles(parts=2, programs=6, samples=256) if interpreted else None
            cases[f"{name} wide"] = compare(pillars, wide, boxes, labels, dtype, tiles=tiles)
        boxes, labels = (tensor.to(device) for tensor in make_boxes(9, 1))
        indices = torch.tensor([[2, 0, 5, -1, 8], [-1, 4, 3, -1, -1]], dtype=torch.int32, device=device)
        case = compare(few, narrow, boxes, labels, dtype, tiles=small, indices=indices)
        cases[f"{name} narrow, chosen boxes, few pillars"] = case
    boxes, labels = (tensor.to(device) for tensor in make_boxes(9, 1))
    counted = small._replace(parts=1, rows=16, counted=16)
    case = compare(pillars, narrow, boxes, labels, torch.float16, tiles=counted)
    cases["float16 more boxes than are counted at a time"] = case
    boxes, labels = (tensor.to(device) for tensor in make_boxes(1, 1))
    cases["float32 one box"] = compare(pillars, narrow, boxes, labels, torch.float32, tiles=sliced)
    points, lengths = (tensor.to(device) for tensor in make_points(size, columns=5))
    aged = with_poison(fixed_pillars(points, lengths, AGED, 1000, impl="reference"))
    old = make_stage((16, 24, 40), 20, 1, columns=5)
    cases["float32 with ages"] = compare(aged, old, boxes, labels, torch.float32, tiles=small)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
