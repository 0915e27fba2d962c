"""Compare the Triton table with the reference on one device; prints a JSON report.

Run on its own by test_table_triton.py, because Triton decides at import whether it interprets kernels.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import triton
from torch import Tensor

from sparse_core.conv import build_table, strided_table, submanifold_table
from sparse_core.conv.coordinates import triton as kernels
from sparse_core.conv.coordinates.common import MARGIN

SHAPE = (40, 50)


def cases(size: int) -> dict[str, Tensor]:
    """Coordinates (N, 3) by name."""
    generator = torch.Generator().manual_seed(0)

    def uniform(count: int) -> Tensor:
        columns = [torch.randint(0, bound, (count,), generator=generator) for bound in (3, *SHAPE)]
        return torch.stack(columns, dim=1)

    return {
        "random": uniform(size),
        "clustered": torch.cartesian_prod(torch.arange(1), torch.arange(9, 30), torch.arange(20, 40)),
        "duplicates": uniform(7)[torch.randint(0, 7, (size,), generator=generator)],
        "single key": torch.tensor([[2, 39, 49]]).expand(size, 3),
        "one coordinate": uniform(1),
        "power of two": uniform(256),
        "no coordinate": uniform(0),
    }


def compare(coordinates: Tensor) -> dict[str, object]:
    """Which of the results agree, and how many kernels were launched."""
    launches = 0
    launch = kernels._launch

    def counted(kernel: Any, count: int, *arguments: Any) -> None:
        nonlocal launches
        launches += 1
        launch(kernel, count, *arguments)

    kernels._launch = counted
    try:
        table = build_table(coordinates, SHAPE, impl="triton")
        expected = build_table(coordinates, SHAPE, impl="reference")
        order = torch.randperm(len(coordinates)).to(coordinates.device)
        shuffled = build_table(coordinates[order], SHAPE, impl="triton")
        axes = [torch.arange(3), *(torch.arange(-MARGIN, size + MARGIN) for size in (12, 12))]
        queries = torch.cartesian_prod(*axes).to(coordinates.device)
        found, wanted = table.lookup(queries), expected.lookup(queries)
        maps = [submanifold_table(part, (3, 3)) for part in (table, expected)]
        strided = [strided_table(part, (3, 3), (2, 2), (1, 1))[0] for part in (table, expected)]
    finally:
        kernels._launch = launch
    return {
        "rows": len(table),
        "launches": launches,
        "hashed": table.slots is not None,
        "coordinates": torch.equal(table.coordinates, expected.coordinates),
        "input rows": torch.equal(table.rows, expected.rows),
        "lookup": torch.equal(found, wanted),
        "order": torch.equal(shuffled.rows, table.rows[order]),
        "submanifold": torch.equal(maps[0].rows, maps[1].rows),
        "strided": torch.equal(strided[0].rows, strided[1].rows),
    }


if __name__ == "__main__":
    device, size = torch.device(sys.argv[1]), int(sys.argv[2])
    report = {name: compare(coordinates.to(device)) for name, coordinates in cases(size).items()}
    interpreted = not isinstance(kernels._insert_kernel, triton.JITFunction)
    print(json.dumps({"interpreted": interpreted, "cases": report}))
