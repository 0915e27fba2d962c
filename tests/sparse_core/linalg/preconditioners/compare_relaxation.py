"""Compare the Triton relaxation with the reference on one device; prints a JSON report.

Run on its own by test_relaxation_triton.py, because Triton decides at import whether it interprets kernels.
"""

from __future__ import annotations

import json
import sys

import torch
import triton
from torch import Tensor

from sparse_core.formats import COO, CSR
from sparse_core.linalg import gauss_seidel
from sparse_core.linalg.preconditioners import triton as kernels


def systems(size: int) -> dict[str, CSR]:
    """Diagonally dominant matrices by name."""
    generator = torch.Generator().manual_seed(0)

    def couple(row: Tensor, col: Tensor, dtype: torch.dtype) -> CSR:
        row, col = torch.cat([row, col]), torch.cat([col, row])
        off = row != col
        row, col = row[off], col[off]
        value = torch.rand(len(row), generator=generator, dtype=torch.float64).to(dtype) - 0.5
        everyone = torch.arange(size)
        total = torch.ones(size, dtype=dtype).index_add_(0, row, value.abs())
        entries = COO(
            torch.cat([row, everyone]), torch.cat([col, everyone]), torch.cat([value, total]), (size, size)
        )
        return entries.to(CSR)

    def index(count: int) -> Tensor:
        return torch.randint(size, (count,), generator=generator)

    chain = torch.arange(size - 1)
    hub = torch.arange(1, size)
    return {
        "chain, two colours": couple(chain, chain + 1, torch.float32),
        "random, many colours": couple(index(3 * size), index(3 * size), torch.float32),
        "float64": couple(index(2 * size), index(2 * size), torch.float64),
        "a long row": couple(torch.cat([0 * hub, index(size)]), torch.cat([hub, index(size)]), torch.float32),
    }


def compare(matrix: CSR, device: torch.device) -> dict[str, object]:
    """Largest relative difference over sweeps, and whether a second run gives the same bits."""
    matrix = matrix.to(device)
    b = torch.randn(matrix.shape[0], generator=torch.Generator().manual_seed(1)).to(device, matrix.dtype)
    worst, same = 0.0, True
    for sweeps, symmetric in ((1, True), (1, False), (3, True)):
        fused = gauss_seidel(matrix, sweeps=sweeps, symmetric=symmetric, impl="triton")
        plain = gauss_seidel(matrix, sweeps=sweeps, symmetric=symmetric, impl="reference")
        found, wanted = fused.solve(b), plain.solve(b)
        worst = max(worst, float((found - wanted).norm() / wanted.norm()))
        same = same and torch.equal(found, fused.solve(b))
    return {"difference": worst, "repeatable": same, "colours": fused.order.colours}


if __name__ == "__main__":
    device, size = torch.device(sys.argv[1]), int(sys.argv[2])
    interpreted = not isinstance(kernels._relax_kernel, triton.JITFunction)
    report = {name: compare(matrix, device) for name, matrix in systems(size).items()}
    print(json.dumps({"interpreted": interpreted, "cases": report}))
