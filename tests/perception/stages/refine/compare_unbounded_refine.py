"""Compare a refinement step over hashed pillars in Triton with the reference; prints a JSON report.

Run on its own by test_fixed_refine_triton.py, because Triton decides at import whether it interprets kernels.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import torch
import triton
from compare_refine import FRAMES, make_boxes, make_points, make_stage, numbers
from torch import Tensor

from perception.geometry import OpenGrid
from perception.stages.pillars.unbounded import HashedPillars, hash_pillars
from perception.stages.refine import PackedRefine, RefinedBoxes, RefineTiles, RefineWorkspace, pack_refine
from perception.stages.refine.crop_triton import listed_crop_kernel
from perception.stages.refine.unbounded import refine_hashed
from sparse_core.conv.grid import fixed_hash
from sparse_core.conv.grid.layout import FixedHash

GRID = OpenGrid((-3.0, -5.12), (-3.0, 3.0), 0.32)
#: The interpreter takes seconds for what a GPU does in microseconds.
TILES = RefineTiles(parts=2, rows=16, length=32, points=32, columns=16, programs=6, head_columns=128)


def lists(points: Tensor, lengths: Tensor) -> tuple[HashedPillars, FixedHash]:
    """Pillars, and cells of the map at half its resolution."""
    pillars = hash_pillars(points, lengths, GRID, 1500, impl="reference")
    coarse = GRID.coarser(8)
    row, column = coarse.cell_of(*points[..., :2].unbind(2))
    frame = torch.arange(FRAMES, device=points.device)[:, None].expand_as(row)
    cells = torch.stack([frame, row, column], dim=2).view(-1, 3).int()
    return pillars, fixed_hash(cells, coarse.key_shape, FRAMES, 64, impl="reference")


def compare(pillars: HashedPillars, last: FixedHash, count: int, dtype: torch.dtype) -> dict[str, Any]:
    """Errors against the reference, and whether what must be the same to the bit is."""
    device = pillars.points.device
    stage = make_stage((16, 24, 40), 20, 1)
    packed = pack_refine(stage, dtype=dtype, device=device)
    weights: PackedRefine = packed._replace(grid=GRID.coarser(4))
    boxes, labels = (tensor.to(device) for tensor in make_boxes(count, 1))
    features = torch.randn(
        4 * last.capacity + 4, weights.map_channels, generator=torch.Generator().manual_seed(3)
    )
    workspace = RefineWorkspace.make(labels.numel(), weights)

    def refined(of: HashedPillars, impl: Any) -> RefinedBoxes:
        return refine_hashed(
            of,
            features.to(device, dtype),
            last,
            boxes,
            labels,
            weights,
            grid=GRID,
            turn=True,
            workspace=workspace,
            tiles=TILES if device.type == "cpu" else None,
            impl=impl,
        )

    expected, found, again = (refined(pillars, impl) for impl in ("reference", "triton", "triton"))
    wanted = numbers(expected)
    difference = (numbers(found) - wanted).abs() / wanted.abs().amax(dim=(0, 1)).clamp(min=1.0)
    return {
        "labels": torch.equal(found.labels, expected.labels),
        "finite": bool(numbers(found).isfinite().all()),
        "repeats": torch.equal(numbers(found), numbers(again)),
        "workspace is clean": not any(
            bool(part.any()) for part in (workspace.pooled, workspace.counts, workspace.arrivals)
        ),
        "changes boxes": float((found.boxes - boxes.nan_to_num())[found.labels >= 0].abs().max()),
        "absent are zero": not bool(numbers(found)[found.labels < 0].any()),
        "error": float(difference.max()),
    }


def main() -> None:
    """Report on the device of the first argument; the second is the number of points of a frame."""
    device, size = torch.device(sys.argv[1]), int(sys.argv[2])
    points, lengths = (tensor.to(device) for tensor in make_points(size))
    pillars, last = lists(points, lengths)
    none = replace_rows(pillars)
    one = 1 if device.type == "cpu" else 9
    report: dict[str, Any] = {
        "interpreted": not isinstance(listed_crop_kernel, triton.JITFunction),
        "cases": {
            "float32": compare(pillars, last, one, torch.float32),
            "float16": compare(pillars, last, 9, torch.float16),
            "float16 no points": compare(none, last, one, torch.float16),
        },
    }
    print(json.dumps(report))


def replace_rows(pillars: HashedPillars) -> HashedPillars:
    """The same pillars without a point in any."""
    keys = torch.full_like(pillars.grid.keys, -1)
    grid = replace(pillars.grid, keys=keys, count=torch.zeros_like(pillars.grid.count))
    return pillars._replace(grid=grid, offsets=torch.zeros_like(pillars.offsets))


if __name__ == "__main__":
    main()
