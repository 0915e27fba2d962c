"""Compare the Triton assembly with the reference on one device; prints a JSON report.

Run on its own by test_assemble_triton.py, because Triton decides at import whether it interprets kernels.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import triton
from torch import Tensor

from sparse_core.formats.assemble import assemble_csr
from sparse_core.formats.assemble import triton as kernels

Case = tuple[Tensor, Tensor, Tensor, tuple[int, int]]


def cases(size: int) -> dict[str, Case]:
    """Rows, columns, values (N,) and shape by name."""
    generator = torch.Generator().manual_seed(0)

    def index(bound: int, count: int) -> Tensor:
        return torch.randint(0, bound, (count,), generator=generator, dtype=torch.int32)

    def values(count: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(count, generator=generator, dtype=torch.float64).to(dtype)

    rows, cols = size // 4 + 1, size // 2 + 1
    row, col = index(rows, size), index(cols, size)
    again = index(size, size // 2)
    doubled_row, doubled_col = torch.cat([row, row[again]]), torch.cat([col, col[again]])
    order = torch.argsort(doubled_row.long() * cols + doubled_col, stable=True)
    many = len(doubled_row)
    skewed = (rows * torch.rand(size, generator=generator) ** 3).int()
    special = values(size)
    special[:3] = torch.tensor([float("nan"), float("inf"), -0.0])
    distinct = torch.randperm(size, generator=generator) * (rows * cols // size)
    tall = torch.cat([index(2, 700), index(rows, size)])
    return {
        "distinct": ((distinct // cols).int(), (distinct % cols).int(), values(size), (rows, cols)),
        "duplicates": (doubled_row, doubled_col, values(many), (rows, cols)),
        "float64, int64 indices": (row.long(), col.long(), values(size, torch.float64), (rows, cols)),
        "float16": (doubled_row, doubled_col, values(many, torch.float16), (rows, cols)),
        "bfloat16": (row, col % 5, values(size, torch.bfloat16), (rows, cols)),
        "complex64": (row, col % 5, torch.complex(values(size), values(size)), (rows, cols)),
        "long rows": (index(2, size) * 2, col, values(size), (4, cols)),
        "skewed rows": (skewed, col, values(size), (rows, cols)),
        "sorted with duplicates": (doubled_row[order], doubled_col[order], values(many), (rows, cols)),
        "sorted, distinct": (*_cells(distinct.sort().values, cols), values(size), (rows, cols)),
        "very many of one cell": (tall, torch.zeros_like(tall), values(len(tall)), (rows, cols)),
        "sorted, very many of one cell": (tall.sort().values, 0 * tall, values(len(tall)), (rows, cols)),
        "NaN, infinity, negative zero": (row, col, special, (rows, cols)),
        "one entry": (index(1, 1), index(1, 1), values(1), (1, 1)),
        "one cell": (index(1, 9), index(1, 9), values(9), (1, 1)),
        "last rows empty": (index(3, size) + 2, col, values(size), (rows + 9, cols)),
    }


def _cells(keys: Tensor, cols: int) -> tuple[Tensor, Tensor]:
    return (keys // cols).int(), (keys % cols).int()


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Equal, NaN and the sign of zero included."""
    if left.is_complex():
        return same_bits(torch.view_as_real(left), torch.view_as_real(right))
    as_integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[left.element_size()]
    nan = left.isnan() & right.isnan()
    return left.dtype == right.dtype and bool(
        ((left.view(as_integers) == right.view(as_integers)) | nan).all()
    )


def compare(case: Case, device: torch.device, few: int) -> dict[str, object]:
    """Which of the results agree, and how many kernels were launched; ``few`` is the limit."""
    row, col, values, shape = (*(part.to(device) for part in case[:3]), case[3])
    limit, kernels._FEW = kernels._FEW, few
    launches = 0
    launch = kernels._launch

    def counted(*arguments: Any, **constants: Any) -> None:
        nonlocal launches
        launches += 1
        launch(*arguments, **constants)

    kernels._launch = counted
    try:
        found = assemble_csr(row, col, values, shape, impl="triton")
        entries = values.clone().requires_grad_()
        again = assemble_csr(row, col, entries, shape, impl="triton")
        upstream = torch.linspace(1, 2, len(found.values), device=device).to(values.dtype)
        (gradient,) = torch.autograd.grad(again.values, entries, upstream)
    finally:
        kernels._launch, kernels._FEW = launch, limit
    wanted = assemble_csr(row, col, values, shape, impl="reference")
    entries = values.clone().requires_grad_()
    summed = assemble_csr(row, col, entries, shape, impl="reference").values
    (wanted_gradient,) = torch.autograd.grad(summed, entries, upstream)
    return {
        "stored": len(found.col),
        "launches": launches,
        "row_ptr": torch.equal(found.row_ptr, wanted.row_ptr) and found.row_ptr.dtype == row.dtype,
        "col": torch.equal(found.col, wanted.col) and found.col.dtype == col.dtype,
        "values": same_bits(found.values, wanted.values),
        "repeatable": same_bits(found.values, again.values.detach()),
        "gradient": torch.equal(gradient, wanted_gradient),
        "own memory": found.values.data_ptr() != values.data_ptr() and found.col.data_ptr() != col.data_ptr(),
    }


def refusals(device: torch.device, few: int) -> list[str]:
    """Messages for indices outside the matrix."""
    messages = []
    limit, kernels._FEW = kernels._FEW, few
    # The last key would overflow to a cell inside.
    places = [
        ([0, 5, 1], [0, 0, 0]),
        ([0, 1, 1], [0, 0, -3]),
        ([-1, 0, 0], [0, 0, 0]),
        ([2**32, 0, 1], [0] * 3),
    ]
    for row, col in places:
        try:
            indices = (torch.tensor(index, device=device) for index in (row, col))
            assemble_csr(*indices, torch.ones(3, device=device), (3, 4), impl="triton")
        except ValueError as error:
            messages.append(str(error))
    kernels._FEW = limit
    return messages


if __name__ == "__main__":
    device, size = torch.device(sys.argv[1]), int(sys.argv[2])
    interpreted = not isinstance(kernels.inspect_kernel, triton.JITFunction)
    if interpreted:
        # The interpreter takes milliseconds for a tile of the usual size times its rounds; all paths stay.
        kernels._BLOCK, kernels._TILE, kernels._FIRST_WIDTH, kernels._BINS = 64, 16, 2, 3
    # On either side of the limit: as many entries as it, and one more.
    report = {
        path: {name: compare(case, device, len(case[0]) - more) for name, case in cases(size).items()}
        for path, more in (("few", 0), ("many", 1))
    }
    refused = {"few": refusals(device, 3), "many": refusals(device, 2)}
    print(json.dumps({"interpreted": interpreted, **report, "refusals": refused}))
