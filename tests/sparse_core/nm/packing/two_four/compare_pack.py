"""Compare the Triton kernels that prune and pack with the reference on one device; prints a JSON report.

Run on its own by test_nm_pack_triton.py, because Triton decides at import whether it interprets kernels.
"""

from __future__ import annotations

import json
import sys

import torch
import triton
from torch import Tensor

from sparse_core.nm.packing.two_four import Compressed24, prune_and_pack, prune_and_pack_both
from sparse_core.nm.packing.two_four import triton as kernels

DTYPES = (torch.float16, torch.bfloat16)


def mixed(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """(rows, columns): every 8 rows weights of another kind, so that few calls of a kernel see all kinds."""
    generator = torch.Generator().manual_seed(rows + columns)
    plain = torch.randn(rows // 8, 8, columns, generator=generator)
    few = torch.randint(-2, 3, plain.shape, generator=generator)  # ties, and zeros
    few[:, :4, ::2] = 0
    wide = plain * torch.exp2(torch.randint(-10, 11, plain.shape, generator=generator))
    infinite = plain.masked_fill(torch.rand(plain.shape, generator=generator) < 0.1, float("-inf"))
    kinds = [
        plain,
        few,
        torch.zeros_like(plain),
        -0.0 * plain.abs(),
        plain * torch.finfo(dtype).smallest_normal,  # also below it
        plain.sign() * torch.finfo(dtype).max,
        wide,
        infinite,
    ]
    result = torch.stack([kinds[band % len(kinds)][band] for band in range(rows // 8)])
    return result.reshape(rows, columns).to(dtype)


def shifted(weight: Tensor) -> Tensor:
    """The same weight one element away from where its memory starts."""
    memory = torch.empty(weight.numel() + 1, dtype=weight.dtype, device=weight.device)
    return memory[1:].view(weight.shape).copy_(weight)


def same(left: Compressed24, right: Compressed24) -> bool:
    """Equal to the bit."""
    return left.shape == right.shape and torch.equal(left.buffer, right.buffer)


def compare(weight: Tensor) -> dict[str, bool]:
    """Which of the results agree."""
    one = prune_and_pack(weight, impl="triton")
    both = prune_and_pack_both(weight, dense=True, impl="triton")
    wanted = prune_and_pack_both(weight, dense=True, impl="reference")
    return {
        "rows": same(one, prune_and_pack(weight, impl="reference")),
        "along": same(both.weight, wanted.weight),
        "across": same(both.transposed, wanted.transposed),
        "dense": torch.equal(both.dense.view(torch.int16), wanted.dense.contiguous().view(torch.int16)),
    }


def without_dense(weight: Tensor) -> dict[str, bool]:
    """The same buffers when the dense weight is not asked for."""
    found = prune_and_pack_both(weight, impl="triton")
    wanted = prune_and_pack_both(weight, impl="reference")
    return {
        "along": same(found.weight, wanted.weight),
        "across": same(found.transposed, wanted.transposed),
        "dense": found.dense is None and wanted.dense is None,
    }


def with_nan(device: torch.device) -> bool:
    """NaN moves no bits outside its tile and leaves two of four in each row and column."""
    weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)).bfloat16().to(device)
    weight[:4, :4] = float("nan")
    weight[5, 9] = float("nan")
    found = prune_and_pack_both(weight, dense=True, impl="triton")
    wanted = prune_and_pack_both(weight.nan_to_num(), dense=True, impl="triton")
    kept = (found.dense != 0).reshape(16, 4, 16, 4).transpose(1, 2)
    differs = (found.dense != wanted.dense).reshape(16, 4, 16, 4).transpose(1, 2).any(3).any(2)
    return (
        bool((kept.sum(2) == 2).all())
        and bool((kept.sum(3) == 2).all())
        and set(map(tuple, differs.nonzero().tolist())) <= {(0, 0), (1, 2)}
    )


if __name__ == "__main__":
    interpreted = not isinstance(kernels._rows_kernel, triton.JITFunction)
    device = torch.device(sys.argv[1])
    sizes = [tuple(map(int, size.split("x"))) for size in sys.argv[2:]]
    report = {
        f"{rows}x{columns}, {dtype}": compare(mixed(rows, columns, dtype).to(device))
        for rows, columns in sizes
        # The interpreter is slow: a size for each type has to do.
        for dtype in ([DTYPES[rows < columns]] if interpreted else DTYPES)
    }
    weight = mixed(64, 64, torch.float16).to(device)
    report["transposed"] = compare(weight.T)
    report["not aligned"] = compare(shifted(weight))
    report["without dense"] = without_dense(weight)
    print(json.dumps({"interpreted": interpreted, "cases": report, "nan": with_nan(device)}))
