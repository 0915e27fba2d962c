"""Compare the Triton steps from points to pillar features with the reference; prints a JSON report.

Run on its own by test_fixed_pillars_triton.py: Triton decides at import whether it interprets kernels.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import torch
import triton
from pillar_frames import batch_of, encoder_of, in_order
from torch import Tensor

from perception.config import PillarConfig
from perception.stages.pillars import (
    EncoderWeights,
    FixedPillars,
    PillarWorkspace,
    encode_triton,
    fixed_encode,
    locate_points,
    sort_points,
    types,
)
from perception.stages.pillars import triton as kernels
from sparse_core.conv.grid import grid_from_bits
from tests.sparse_core.oracles.poisoned_memory import poisoned_memory

CONFIG = PillarConfig(range_m=(0.0, -8.0, -3.0, 16.0, 8.0, 1.0), pillar_size_m=0.5, channels=64)
#: 25 tiles of cells, which make 4 blocks of several where there may be no more.
FINE = PillarConfig(range_m=(0.0, -40.0, -3.0, 80.0, 40.0, 1.0), pillar_size_m=0.5, channels=64)
FEW_BLOCKS = 4
MOST_BLOCKS = types._MOST_BLOCKS
#: Points with a fifth column.
AGED = replace(CONFIG, sweeps=3)
ONE = PillarConfig(range_m=(-1.0, -1.0, -1.0, 1.0, 1.0, 1.0), pillar_size_m=2.0, channels=16)


def scatter(count: int, config: PillarConfig, seed: int, *, margin_m: float = 0.0) -> Tensor:
    """(count, 4) points all over the range and ``margin_m`` around it."""
    generator = torch.Generator().manual_seed(seed)
    low, high = torch.tensor([*config.range_m[:3], 0.0]), torch.tensor([*config.range_m[3:], 1.0])
    unit = torch.rand((count, 4), generator=generator)
    return low - margin_m + unit * (high - low + 2 * margin_m)


def crowded(count: int) -> Tensor:
    """Most points of a pillar or two, some pillars in between, and points on the lines of the grid."""
    points = scatter(count, CONFIG, 1)
    points[: count // 2, :2] = points[: count // 2, :2] * 0.01 + torch.tensor([7.3, 2.2])
    points[count // 2 : count // 2 + 40, :2] = (points[count // 2 : count // 2 + 40, :2] * 2).round() / 2
    return points


def bad(count: int) -> Tensor:
    """Points of which some are NaN, infinite or far away."""
    points = scatter(count, CONFIG, 2, margin_m=2.0)
    for row in range(0, count, 7):
        points[row, row % 4] = (torch.nan, torch.inf, -torch.inf, 3e38)[row // 7 % 4]
    return points


def aged(count: int) -> Tensor:
    """Crowded and bad points with ages, some of them not finite."""
    points = torch.cat([crowded(count), bad(count)])
    ages = torch.rand((len(points), 1), generator=torch.Generator().manual_seed(7))
    ages[::11] = torch.nan
    return torch.cat([points, ages], dim=1)


def cases(size: int) -> dict[str, tuple[PillarConfig, list[Tensor], int]]:
    """Grid, frames and capacity by name."""
    full = PillarConfig()
    # Enough for all multiprocessors, where what one thread clears too early another has not read yet.
    many = {"many pillars": (full, [scatter(30 * size, full, 6)], 30 * size)} if size > 1024 else {}
    return {
        **many,
        "one frame": (CONFIG, [scatter(size, CONFIG, 0, margin_m=1.0)], size + 3),
        "crowded": (CONFIG, [crowded(size)], 1024 if size > 1024 else size),
        "bad points": (CONFIG, [bad(size)], size),
        "batch": (CONFIG, [bad(size // 2), scatter(0, CONFIG, 0), crowded(size), bad(17)], 2 * size),
        "overflow": (CONFIG, [crowded(size), scatter(size, CONFIG, 4)], 20),
        "fine": (FINE, [scatter(size // 2, FINE, 3)], size),
        "with ages": (AGED, [aged(size // 2), aged(9)], size),
        "one pillar": (ONE, [scatter(min(300, 3 * size), ONE, 5)], 1),
        "no point": (CONFIG, [scatter(0, CONFIG, 0)], 5),
    }


def canonical(pillars: FixedPillars) -> Tensor:
    """Bits of the points in an order that does not depend on how they came."""
    offsets = pillars.offsets.long()
    points = pillars.points[: int(offsets[-1])]
    rows = torch.searchsorted(offsets, torch.arange(len(points), device=points.device), right=True)
    return in_order(points, rows)


def same_points(first: FixedPillars, second: FixedPillars) -> bool:
    """Whether each pillar has the same points, bit for bit."""
    return torch.equal(canonical(first), canonical(second))


def compare(
    config: PillarConfig, frames: list[Tensor], capacity: int, device: torch.device
) -> dict[str, object]:
    """Which of the results agree, and how far features differ."""
    points, lengths = (part.to(device) for part in batch_of(frames, torch.nan))
    weights = EncoderWeights.from_encoder(encoder_of(config), device=device)
    types._MOST_BLOCKS = FEW_BLOCKS if config is FINE else MOST_BLOCKS
    workspaces = [PillarWorkspace.make(config, len(frames), device=device) for _ in range(2)]
    wanted_cells = locate_points(points, lengths, config, workspace=workspaces[0], impl="reference")
    found_cells = locate_points(points, lengths, config, workspace=workspaces[1], impl="triton")
    held = (torch.arange(points.shape[1], device=device) < lengths[:, None]).flatten()
    parts = ("counts", "bits", "block_points", "invalid", "sums")
    facts: dict[str, object] = {
        "cells": torch.equal(wanted_cells.cells[held], found_cells.cells[held]),
        "counts": all(torch.equal(*(getattr(space, part) for space in workspaces)) for part in parts[:4]),
        "sums": torch.equal(*(space.sums for space in workspaces)),
        "several tiles": workspaces[1].block_cells > 1024,
    }
    grid = grid_from_bits(wanted_cells.bits, config.grid_shape, len(frames), capacity, impl="reference")
    rows = int(grid.count)
    facts["rows"], facts["left out"] = rows, int(grid.active) - rows
    for dtype in (torch.float32, torch.float16):
        features = fixed_encode(found_cells, grid, weights, dtype=dtype, impl="triton")[:rows].float()
        expected = fixed_encode(wanted_cells, grid, weights, dtype=torch.float32, impl="reference")[:rows]
        scale = expected.abs().max() if rows else torch.ones(())
        difference = (features - expected).abs().max() / scale if rows else torch.zeros(())
        facts[f"difference {str(dtype)[6:]}"] = float(difference)
    # Every call begins with zeros, so each leaves them.
    twice = [fixed_encode(found_cells, grid, weights, impl="triton")[:rows] for _ in range(2)]
    facts["repeated"] = torch.equal(*twice)
    wanted = sort_points(wanted_cells, grid, impl="reference")
    found = sort_points(found_cells, grid, impl="triton")
    facts["offsets"] = torch.equal(wanted.offsets, found.offsets)
    facts["invalid"] = torch.equal(wanted.invalid, found.invalid)
    facts["points"] = same_points(wanted, found)
    facts["cleared"] = not any(bool(getattr(workspaces[1], part).any()) for part in parts)
    # The same frames in another order, in the workspace that was cleared.
    shuffled, _ = batch_of([frame[torch.randperm(len(frame))] for frame in frames], torch.nan)
    again = locate_points(shuffled.to(device), lengths, config, workspace=workspaces[1], impl="triton")
    features = fixed_encode(again, grid, weights, impl="triton")[:rows]
    turned = sort_points(again, grid, impl="triton")
    facts["permuted"] = same_points(found, turned) and torch.equal(features, twice[0])
    sums = workspaces[1].accumulators(capacity, config.channels // 2)
    facts["kept sums"] = sums[0] is workspaces[1].accumulators(capacity, config.channels // 2)[0]
    facts["sums cleared"] = not any(bool(part.any()) for part in sums)
    return facts


if __name__ == "__main__":
    device, size = torch.device(sys.argv[1]), int(sys.argv[2])
    with poisoned_memory():
        report = {name: compare(*case, device) for name, case in cases(size).items()}
    interpreted = not isinstance(kernels.locate_kernel, triton.JITFunction)
    assert interpreted == (not isinstance(encode_triton.points_kernel, triton.JITFunction))
    print(json.dumps({"interpreted": interpreted, "cases": report}))
