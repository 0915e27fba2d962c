"""Block-sparse matrix times dense matrix: ours against the dense product and torch's BSR.

    python -m benchmarks.sparse.block_spmm --device cuda

8192³ in bfloat16 on a GPU, with blocks of 32, 64 and 128 and 30 to 95 % of them zero. Every side must agree
with a float64 product before it is timed.
"""

from __future__ import annotations

import argparse
import gc
import math
import sys
from collections.abc import Sequence
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.lib.timing import Side, Summary, interleave, paired_ratio
from benchmarks.publish.screen import tables
from benchmarks.sparse.matrices import noted, random_dense, relative_error
from sparse_core.formats import BSR, generators
from sparse_core.linalg import spmm

OURS, DENSE, TORCH = "BSR", "dense", "torch BSR"
#: Error relative to the largest number; results are rounded to bfloat16, TF32 rounds the operands of float32.
_TOLERANCE = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 2e-3}
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    device = torch.device(options.device)
    configure(device, options.threads)
    dtype = _DTYPES[options.dtype]
    dense = random_dense(options.size, options.columns, device=device, seed=options.seed + 1, dtype=dtype)
    notes: list[str] = []
    rows = []
    for block in options.blocks:
        for sparsity in options.sparsities:
            rows.append(_measure(block, sparsity, dense, options, notes))
            gc.collect()
    settings = {
        "device": options.device,
        "dtype": options.dtype,
        "size": options.size,
        "columns": options.columns,
        "rounds": options.rounds,
        "threads": options.threads,
        "seed": options.seed,
        "quick": options.quick,
    }
    even = {
        str(block): break_even([row for row in rows if row["block"] == block]) for block in options.blocks
    }
    notes.append(
        "TFLOP/s counts two operations for every stored scalar and column (dense: for every scalar). 'tile"
        " TB/s' is the rate at which tiles of the dense operand are read, once a block, mostly from cache."
    )
    values = result(
        "block_spmm", device, settings, cases=rows, break_even=even, notes=list(dict.fromkeys(notes))
    )
    save(values, options)
    show(values, tables(values, "block_spmm-detail", "block_spmm"), values["notes"], as_json=options.json)
    return 0 if all(side["agrees"] for row in rows for side in row["sides"].values()) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "block_spmm", quick="smaller matrices, fewer sparsities and rounds")
    parser.add_argument("--rounds", type=int, help="measured calls of each side (20; 3 with --quick)")
    parser.add_argument(
        "--size", type=int, help="rows and columns of the sparse matrix (8192; 1024 on a CPU)"
    )
    parser.add_argument("--columns", type=int, help="columns of the dense one (as many)")
    parser.add_argument("--dtype", choices=tuple(_DTYPES), help="bfloat16, on a CPU float32")
    parser.add_argument("--blocks", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--sparsities", type=float, nargs="+", help="shares of zero blocks, rising")
    options = parse(parser, arguments)
    gpu = options.device == "cuda"
    options.rounds = options.rounds or (3 if options.quick else 20)
    options.size = options.size or ((4096 if gpu else 256) if options.quick else (8192 if gpu else 1024))
    options.columns = options.columns or options.size
    options.dtype = options.dtype or ("bfloat16" if gpu else "float32")
    some, every = [0.5, 0.9], [0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 0.95]
    options.sparsities = sorted(options.sparsities or (some if options.quick else every))
    return options


def _measure(
    block: int, sparsity: float, dense: Tensor, options: argparse.Namespace, notes: list[str]
) -> dict[str, Any]:
    matrix = generators.block_sparse(
        options.size,
        block_size=block,
        density=1 - sparsity,
        seed=options.seed,
        dtype=dense.dtype,
        device=dense.device,
    )
    sides, errors = _agreeing_sides(matrix, dense, notes)
    samples = interleave(
        sides, dense.device, rounds=options.rounds, warmup=2, budget_s=6.0, clock="device", seed=options.seed
    )
    work = dict.fromkeys(sides, 2.0 * matrix.nnz * dense.shape[1])
    work[DENSE] = 2.0 * matrix.shape[0] * matrix.shape[1] * dense.shape[1]
    tiles = len(matrix.col) * block * dense.shape[1] * dense.itemsize
    found = {
        name: {
            "time": Summary.of(times).to_dict(),
            "tflop_s": round(work[name] / median(times) / 1e9, 3),
            "error": noted(errors[name]),
            "agrees": errors[name] <= _TOLERANCE[dense.dtype],
        }
        for name, times in samples.items()
    }
    return {
        "block": block,
        "sparsity": sparsity,
        "blocks": len(matrix.col),
        "sides": found,
        "tile_tb_s": round(tiles / median(samples[OURS]) / 1e9, 3),
        "over": {name: paired_ratio(times, samples[OURS]) for name, times in samples.items() if name != OURS},
    }


def _agreeing_sides(matrix: BSR, dense: Tensor, notes: list[str]) -> tuple[dict[str, Side], dict[str, float]]:
    """Return the sides to time and their errors against a float64 product; sides that cannot run are
    noted."""
    stored = matrix.to_dense()
    exact = stored.double() @ dense.double()
    library = matrix.to_torch()
    sides: dict[str, Side] = {
        OURS: partial(spmm, matrix, dense),
        DENSE: partial(torch.matmul, stored, dense),
        TORCH: partial(torch.matmul, library, dense),
    }
    errors = {}
    for name in list(sides):
        try:
            product = sides[name]()
        except (RuntimeError, NotImplementedError) as error:
            if name == OURS:
                raise
            notes.append(f"{name}, blocks of {matrix.block_size[0]}: {str(error).splitlines()[0][:150]}")
            del sides[name]
            continue
        assert isinstance(product, Tensor)
        errors[name] = relative_error(product, exact)
    return sides, errors


def break_even(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sparsity from which the sparse product wins, by interpolation on the logarithm of the speed-up.

    Args:
        rows: cases of one block size, sparsity rising.

    Returns:
        ``sparsity`` and ``found``: ``"between"`` two cases, ``"below"`` the first (which is given) or
        ``"never"`` (None).
    """
    points = [(row["sparsity"], math.log(row["over"][DENSE]["median"])) for row in rows]
    losing = [index for index, (_, gain) in enumerate(points) if gain < 0]
    if not losing:
        return {"sparsity": points[0][0] if points else None, "found": "below" if points else "never"}
    last = losing[-1]
    if last + 1 == len(points):
        return {"sparsity": None, "found": "never"}
    (low, loss), (high, gain) = points[last], points[last + 1]
    return {"sparsity": round(low + (high - low) * loss / (loss - gain), 3), "found": "between"}


if __name__ == "__main__":
    sys.exit(main())
