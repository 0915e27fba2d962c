"""Compare the kernels of near cells with the reference, and the neck over lists with the dense one.

Run on its own by test_near_triton.py, because Triton decides at import whether it interprets kernels.
Prints a JSON report; the argument is the device.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import triton
from near_scenes import BothNecks, make_level, random_cells

from perception.stages.backbone import units
from perception.stages.neck import (
    EmptyMaps,
    WrittenMaps,
    near_lists,
    near_tables,
)
from perception.stages.neck import triton as kernels
from sparse_core.conv.convolution import ConvolutionConfig
from sparse_core.conv.grid import grid_from_cells
from sparse_core.kernels.op import Impl
from tests.sparse_core.oracles.poisoned_memory import poisoned_memory

IMPLEMENTATIONS: tuple[Impl, Impl] = ("triton", "reference")


def compare_lists(
    device: torch.device, shape: tuple[int, int], frames: int, count: int, capacities: list[int]
) -> dict[str, bool]:
    """Lists, tables and finer cells; ``shape`` is the coarse map's, ``capacities`` those of all lists."""
    finer = (2 * shape[0], 2 * shape[1])
    cells = random_cells(count, frames, finer, 4)
    empty = EmptyMaps(shape, len(capacities) - 1)
    made = []
    for impl in IMPLEMENTATIONS:
        first = make_level(cells, finer, frames, max(1, len(cells)), capacities[0], impl, device)[1]
        lists = [first, *near_lists(first, capacities[1:], impl=impl)]
        fine_cells = torch.full((4 * capacities[-1],), 99, dtype=torch.int32, device=device)
        made.append((lists, near_tables(lists, empty, fine_cells, impl=impl), fine_cells))
    (lists, tables, fine_cells), (wanted_lists, wanted, wanted_cells) = made
    found = {"finer cells": torch.equal(fine_cells, wanted_cells)}
    for part in ("words", "cells", "count", "active"):
        found[part] = all(
            torch.equal(getattr(one, part), getattr(other, part))
            for one, other in zip(lists, wanted_lists, strict=True)
        )
    counts = [int(entry.count) for entry in wanted_lists]
    # Entries behind the last row are undefined.
    found["tables"] = all(
        torch.equal(one[:, :count], other[:, :count])
        for one, other, count in zip(tables.tables, wanted.tables, counts[1:-1], strict=True)
    )
    found["residuals"] = all(
        torch.equal(one[:count], other[:count])
        for one, other, count in zip(tables.residual_rows, wanted.residual_rows, counts[2:-1:2], strict=True)
    )
    used = 4 * counts[-1]
    found["finer table"] = torch.equal(tables.fine_table[:, :used], wanted.fine_table[:, :used])
    found["finer count"] = int(tables.fine_count) == int(wanted.fine_count) == used
    found["not trivial"] = count == 0 or max(counts) > 0
    return found


def compare_restoring(device: torch.device) -> dict[str, bool]:
    """Cells given their empty values by both; the others stay."""
    empty, frames, channels, classes = EmptyMaps((9, 5), 3), 2, 7, 3
    rows, columns = 18, 10
    generator = torch.Generator().manual_seed(5)
    cells = torch.randperm(frames * rows * columns, generator=generator).int()[:77]
    cells[70:] = -1
    made = []
    for impl in IMPLEMENTATIONS:
        written = WrittenMaps(
            cells.to(device),
            torch.full((frames * rows * columns, channels), 5.0, device=device),
            torch.full((frames, classes, rows, columns), 6.0, device=device),
            torch.arange(4.0 * empty.cells * channels, device=device).view(-1, channels),
            -torch.arange(4.0 * empty.cells * classes, device=device).view(-1, classes),
        )
        first = grid_from_cells(torch.zeros(1, dtype=torch.int32, device=device), (9, 5), frames, 1)
        near_lists(first, [4], written=written, empty=empty, impl=impl)
        made.append(written)
    return {
        "features": torch.equal(made[0].features, made[1].features),
        "heat": torch.equal(made[0].heat, made[1].heat),
        "restored": int((made[1].features[:, 0] != 5).sum()) == 70,
    }


def compare_necks(
    device: torch.device, dtype: torch.dtype, shape: tuple[int, int], frames: int, blocks: int, room: int
) -> dict[str, bool]:
    """Over lists and dense, with the same tiles: equal to the bit, whatever was computed before."""
    both = BothNecks(
        shape, frames, [room] * (2 * blocks + 2), dtype=dtype, impl="triton", device=device, blocks=blocks
    )
    scenes = [
        random_cells(4 * frames, frames, both.finer, 1, corner=0.3),
        [],
        [(frames - 1, both.finer[0] - 1, both.finer[1] - 1)],
    ]
    equal = {}
    for number, scene in enumerate(scenes):
        grids, features = both.scene(scene, number)
        for name, one, other in zip(
            ("map", "heat"), both.listed(grids, features), both.dense(grids, features), strict=True
        ):
            equal[f"{name} {number}"] = torch.equal(one, other)
    return equal


def replay(device: torch.device) -> dict[str, bool]:
    """The neck in a CUDA graph, over scenes in turn: those of the dense layers every time."""
    shape, frames = (124, 108), 2
    both = BothNecks(shape, frames, [8192] * 6, dtype=torch.float16, impl="triton", device=device)
    scenes = [
        both.scene(random_cells(count, frames, both.finer, count, corner=corner), count)
        for count, corner in ((600, 0.2), (40, 1.0), (0, 1.0), (900, 0.3))
    ]
    grids, features = both.scene(random_cells(700, frames, both.finer, 9, corner=0.25), 9)
    expected = [[part.clone() for part in both.dense(*scene)] for scene in scenes]
    both.listed(grids, features)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = both.listed(grids, features)
    equal = True
    for turn in range(40):
        other, values = scenes[turn % len(scenes)]
        for mine, given in zip(grids, other, strict=True):
            for part in ("words", "cells", "count", "active"):
                getattr(mine, part).copy_(getattr(given, part))
        features.copy_(values)
        graph.replay()
        pairs = zip(found, expected[turn % len(scenes)], strict=True)
        equal &= all(torch.equal(one, wanted) for one, wanted in pairs)
    return {"replays": equal}


def report(device: torch.device) -> dict[str, Any]:
    """Everything."""
    interpreted = not isinstance(kernels.tables_kernel, triton.JITFunction)
    found: dict[str, Any] = {"interpreted": interpreted}
    found["lists"] = {
        "two frames": compare_lists(device, (7, 9), 2, 12, [40, 60, 90, 126, 126, 126]),
        "beyond the room": compare_lists(device, (21, 35), 1, 9, [5, 20, 33, 1, 60, 64]),
        "three words wide": compare_lists(device, (13, 70), 2, 8, [64, 128, 128, 256]),
        "nothing": compare_lists(device, (6, 33), 1, 0, [3, 3, 3, 3, 3, 3]),
    }
    if not interpreted:
        found["lists"]["as large as in use"] = compare_lists(device, (248, 216), 1, 3000, [8192] * 6)
    found["restoring"] = compare_restoring(device)
    if interpreted:
        # The interpreter takes a while for each program, however much it does.
        units.chosen_config = lambda shape, device: ConvolutionConfig("pipelined", 128, 32, 32)
    cases = [(torch.float32, (8, 9), 1, 1, 72)]
    if not interpreted:
        cases += [(dtype, (15, 21), 2, 2, 630) for dtype in (torch.float32, torch.float16, torch.bfloat16)]
        cases += [(torch.float16, (124, 108), 2, 2, 8192)]
    found["necks"] = {str(case): compare_necks(device, *case) for case in cases}
    if not interpreted:
        found["graph"] = replay(device)
    return found


if __name__ == "__main__":
    with poisoned_memory(), torch.no_grad():
        print(json.dumps(report(torch.device(sys.argv[1]))))
