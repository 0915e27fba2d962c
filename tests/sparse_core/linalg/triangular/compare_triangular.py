"""Compare the Triton triangular solve with the reference on one device; prints a JSON report.

Run on its own by test_triangular_triton.py, because Triton decides at import whether it interprets kernels.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import scipy.sparse
import torch
import triton
from torch import Tensor

from sparse_core.formats import CSR
from sparse_core.linalg import triangular_solve
from sparse_core.linalg.triangular import triton as kernels


def stencil(side: int) -> CSR:
    """5-point Laplacian of a square grid: levels that grow and shrink."""
    line = scipy.sparse.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(side, side))
    return CSR.from_scipy(scipy.sparse.kronsum(line, line, format="csr"))


def random(rows: int, seed: int) -> CSR:
    """Well-conditioned random matrix, every fourth row with its diagonal alone."""
    generator = torch.Generator().manual_seed(seed)
    dense = torch.randn(rows, rows, generator=generator, dtype=torch.float64)
    dense *= torch.rand(rows, rows, generator=generator) < 4 / rows
    dense[::4] = 0
    return CSR.from_dense(dense.fill_diagonal_(0) / 4 + torch.eye(rows, dtype=torch.float64))


def arrow(rows: int) -> CSR:
    """Diagonal, a dense last row and a dense first row."""
    dense = 2 * torch.eye(rows, dtype=torch.float64)
    dense[-1] = 0.5
    dense[0, :] = 0.25
    dense[-1, -1] = dense[0, 0] = 3
    return CSR.from_dense(dense)


def chain(rows: int) -> CSR:
    """One row a level."""
    return CSR.from_dense(torch.eye(rows, dtype=torch.float64) + 0.5 * torch.ones(rows - 1).double().diag(-1))


def cases(size: int) -> dict[str, tuple[CSR, int, torch.dtype]]:
    """Matrix, right-hand sides (0 for a vector) and dtype by name."""
    return {
        "stencil": (stencil(size), 0, torch.float64),
        "stencil, float32, 3 sides": (stencil(size), 3, torch.float32),
        "random": (random(size * 4, 0), 0, torch.float64),
        "random, 17 sides": (random(size * 2, 1), 17, torch.float64),
        "random, half": (random(size * 2, 2), 2, torch.float16),
        "arrow": (arrow(size * 8), 0, torch.float64),
        "wide": (arrow(700 + size), 0, torch.float32),
        "chain": (chain(size * 2), 1, torch.float64),
        "one row": (CSR.from_dense(torch.full((1, 1), 4.0)), 0, torch.float32),
    }


def compare(matrix: CSR, b: Tensor) -> dict[str, object]:
    """Largest difference relative to the reference over all systems, and the kinds of launches."""
    kinds = {"wide": 0, "narrow": 0}

    def counted(name: str) -> Any:
        kernel = getattr(kernels, name)

        class Counted:
            def __getitem__(self, grid: object) -> Any:
                kinds[name.strip("_").removesuffix("_kernel")] += 1
                return kernel[grid]

        return kernel, Counted()

    replaced = {name: counted(name) for name in ("_wide_kernel", "_narrow_kernel")}
    difference, same = 0.0, False
    try:
        for name, (_, stand_in) in replaced.items():
            setattr(kernels, name, stand_in)
        for bits in range(8):
            system = {"lower": bool(bits & 1), "transpose": bool(bits & 2), "unit_diagonal": bool(bits & 4)}
            found = triangular_solve(matrix, b, impl="triton", **system)
            expected = triangular_solve(matrix, b, impl="reference", **system)
            if bits == 1:
                same = torch.equal(found, triangular_solve(matrix, b, impl="triton", **system))
            scale = expected.double().abs().max().clamp(min=1)
            difference = max(difference, float((found.double() - expected.double()).abs().max() / scale))
    finally:
        for name, (kernel, _) in replaced.items():
            setattr(kernels, name, kernel)
    return {"difference": difference, "repeatable": same, **kinds}


def in_a_graph(matrix: CSR, b: Tensor) -> bool:
    """Whether a recorded solve replays on new right-hand sides."""
    solution = triangular_solve(matrix, b, impl="triton")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        solution = triangular_solve(matrix, b, impl="triton")
    b.copy_(torch.arange(len(b), device=b.device).to(b.dtype))
    graph.replay()
    expected = triangular_solve(matrix, b, impl="reference")
    return bool(torch.allclose(solution, expected, rtol=1e-5, atol=1e-5))


if __name__ == "__main__":
    device, size = torch.device(sys.argv[1]), int(sys.argv[2])
    report: dict[str, Any] = {
        "cases": {},
        "interpreted": not isinstance(kernels._wide_kernel, triton.JITFunction),
    }
    for name, (matrix, sides, dtype) in cases(size).items():
        generator = torch.Generator().manual_seed(1)
        shape = (matrix.shape[0], sides) if sides else (matrix.shape[0],)
        b = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        report["cases"][name] = compare(matrix.to(dtype).to(device), b.to(device)) | {"dtype": str(dtype)}
    if device.type == "cuda":
        matrix = stencil(size).to(device)
        report["graph"] = in_a_graph(matrix, torch.ones(matrix.shape[0], dtype=torch.float64, device=device))
    print(json.dumps(report))
