"""Compare grids made by Triton with those of the reference on one device; prints a JSON report.

Run on its own by test_grid_triton.py, because Triton decides at import whether it interprets kernels.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

from sparse_core.conv.grid import (
    DenseGrid,
    FixedGrid,
    FixedHash,
    GridLevel,
    TableRequest,
    fixed_hash,
    grid_from_cells,
    hash_pyramid,
    linear_cells,
    neighbour_tables,
    pyramid,
    pyramid_triton,
    tables_triton,
)
from sparse_core.conv.grid import triton as kernels

Shape = tuple[int, ...]
_empty = torch.empty


def poisoned(*arguments: Any, **options: Any) -> Tensor:
    """Fill uninitialised memory with arbitrary numbers."""
    return _empty(*arguments, **options).fill_(-12345)


class Launches:
    """Counts the launches of some modules."""

    def __init__(self) -> None:
        self.count = 0

    def watch(self, module: Any) -> None:
        launch: Callable[..., None] = module._launch

        def counted(*arguments: Any, **options: Any) -> None:
            self.count += 1
            launch(*arguments, **options)

        module._launch = counted


def coordinates_of(shape: Shape, density: float) -> Tensor:
    """Return (N, 1 + D) int32 active cells of two frames, with repeats and a few invalid ones."""
    generator = torch.Generator().manual_seed(len(shape))
    active = (torch.rand(2, *shape, generator=generator) < density).nonzero().int()
    none = torch.full((3, len(shape) + 1), -1, dtype=torch.int32)
    return torch.cat([active, none, active[: len(active) // 3]])


def equal(left: FixedGrid | FixedHash, right: FixedGrid | FixedHash) -> bool:
    """True if two grids are bitwise equal."""
    names = ("cells", "words") if isinstance(left, FixedGrid) else ("keys",)
    return all(torch.equal(getattr(left, name), getattr(right, name)) for name in (*names, "count", "active"))


def compare(
    shape: Shape,
    levels: list[GridLevel],
    capacities: list[int],
    density: float,
    with_tables: bool,
    device: torch.device,
) -> dict[str, object]:
    """Which of the results agree, and how many kernels were launched for levels and tables."""
    coordinates = coordinates_of(shape, density).to(device)
    cells = torch.where(coordinates[:, 0] < 0, -1, linear_cells(coordinates, shape))
    of_levels, of_tables = Launches(), Launches()
    of_levels.watch(pyramid_triton)
    of_tables.watch(tables_triton)
    grids, hashes, tables = {}, {}, {}
    for impl in ("reference", "triton"):
        single = grid_from_cells(cells, shape, 2, capacities[0], impl=impl)
        bits = single.words[:, 0].contiguous()
        of_levels.count = 0
        grids[impl] = [*pyramid(bits, shape, 2, capacities, levels, impl=impl), single]
        hashed = fixed_hash(coordinates, shape, 2, capacities[0], impl=impl)
        hashes[impl] = hash_pyramid(hashed, capacities[1:2], levels[:1], impl=impl)
        fine, coarse, sizes = grids[impl][0], grids[impl][1], levels[0][:3]
        ones = (1,) * len(shape)
        requests = [
            TableRequest(fine, fine, (3,) * len(shape), ones, ones),
            TableRequest(fine, coarse, *sizes, True),
            TableRequest(hashes[impl][0], hashes[impl][1], *sizes),
        ]
        if len(shape) < 3:
            requests += [
                TableRequest(fine, coarse, *sizes),
                TableRequest(fine, "all", *sizes),
                TableRequest(fine, "all", *sizes, True),
                TableRequest(DenseGrid(shape, 2), coarse, *sizes),
                TableRequest(hashes[impl][0], hashes[impl][1], *sizes, True),
                TableRequest(fine, hashes[impl][1], *sizes),
            ]
        tables[impl] = neighbour_tables(requests if with_tables else [], impl=impl)
    pairs = [zip(made["triton"], made["reference"], strict=True) for made in (grids, hashes)]
    return {
        "grids": [equal(*pair) for pair in pairs[0]],
        "hashes": [equal(*pair) for pair in pairs[1]],
        "tables": [torch.equal(*pair) for pair in zip(tables["triton"], tables["reference"], strict=True)],
        "active": [int(grid.active) for grid in grids["triton"]],
        "launches": [of_levels.count, of_tables.count],
    }


def halving(shape: Shape, *dilating: bool) -> list[GridLevel]:
    """Levels of kernel 3, stride 2 and padding 1."""
    return [GridLevel(*((size,) * len(shape) for size in (3, 2, 1)), grows) for grows in dilating]


def cases(scale: int) -> dict[str, tuple[Shape, list[GridLevel], list[int], float, bool]]:
    """Shape, levels, capacities, density and whether to make tables; sizes grow with ``scale``."""
    flat, ragged, deep = (13 * scale, 40 * scale), (15, 33 * scale), (3, 5 * scale, 34 * scale)
    room = 120 * scale * scale
    other = GridLevel((2, 3), (2, 1), (0, 1), dilating=False)
    return {
        "dilating": (flat, halving(flat, True, True, True), [room] * 4, 0.05, True),
        "kept small": (flat, halving(flat, False, False, False), [room, 20, 1, 900], 0.05, False),
        "mixed": (ragged, halving(ragged, True, False, True, True), [room] * 5, 0.1, False),
        "full": (ragged, halving(ragged, True), [room, room], 1.0, False),
        "empty": (ragged, halving(ragged, True), [room, 1], 0.0, False),
        "another kernel": (ragged, [other, *halving(ragged, True)], [room, room, room], 0.1, True),
        "three axes": (deep, halving(deep, True, False), [room, room, room], 0.1, True),
        "one axis": ((70 * scale,), halving((1,), True, True), [room, 30, 30], 0.2, True),
    }


if __name__ == "__main__":
    device, scale = torch.device(sys.argv[1]), int(sys.argv[2])
    torch.empty = poisoned
    report = {name: compare(*case, device) for name, case in cases(scale).items()}
    interpreted = not isinstance(kernels.row_of, triton.JITFunction)
    print(json.dumps({"interpreted": interpreted, "cases": report}))
