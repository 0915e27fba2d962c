"""Two figures that are claimed for sparsity and that no other benchmark has: ELL, training with 2:4 weights.

    python -m benchmarks.sparse.claims --device cuda
    python -m benchmarks.sparse.claims --device cpu      # training only

The product of an ELL matrix with a vector is compared with a CSR kernel that uses one thread per row, whose
neighbouring threads read distant addresses (`naive_triton`). A training step runs two Linear layers with GELU
forward and backward and one step of gradient descent, with dense weights and with weights pruned to 2:4 in
every step.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.lib.graphs import call_microseconds, microseconds
from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.results import number, result, save, show, table
from benchmarks.lib.timing import Side, Summary, interleave, paired_ratio
from benchmarks.sparse.matrices import cases, exact_product, relative_error
from sparse_core.formats import ELL
from sparse_core.linalg import spmv
from sparse_core.nm.training import SparseTrainingLinear

_ELL_SLOTS = 2.0
_NAIVE, _OURS = "a thread a row", "ELL"
#: Width and rows of the block that is trained.
_TRAINED = ((1024, 4096), (1024, 16384), (4096, 4096), (4096, 16384))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = common_parser(__doc__, "claims", quick="small matrices, the smallest block")
    parser.add_argument("--rounds", type=int, help="measured calls of each side (20; 3 with --quick)")
    options = parse(parser, arguments)
    options.rounds = options.rounds or (3 if options.quick else 20)
    device = torch.device(options.device)
    configure(device, options.threads)
    products = ell_rows(device, options) if device.type == "cuda" and find_spec("triton") else []
    steps = [
        step_row(width, rows, device, options)
        for width, rows in (((64, 128),) if options.quick or device.type == "cpu" else _TRAINED)
    ]
    values = result("claims", device, asked(options), products=products, steps=steps, notes=[])
    save(values, options)
    shown = [
        table(
            "ELL times a vector",
            ["matrix", "entries", "µs", "naive µs", "times naive"],
            map(_cells, products),
        ),
        table(
            "A training step", ["width", "rows", "dense ms", "2:4 ms", "times dense"], map(_step_cells, steps)
        ),
    ]
    show(values, shown, [], as_json=options.json)
    return 0


def ell_rows(device: torch.device, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Times of each matrix whose rows are about as long as each other."""
    from benchmarks.sparse.naive_triton import naive_product

    rows = []
    for case in cases(device, quick=options.quick, seed=options.seed):
        csr = case.build(device)
        lengths = csr.row_ptr.diff()
        if int(lengths.max()) * csr.shape[0] > _ELL_SLOTS * csr.nnz:
            continue
        ell, x = csr.to(ELL), torch.randn(csr.shape[1], device=device)
        naive = naive_product(csr, x)
        exact = exact_product(csr, x)
        runs = {_OURS: _calling(spmv, ell, x), _NAIVE: naive}
        errors = {name: relative_error(run(), exact) for name, run in runs.items()}
        if max(errors.values()) > 1e-4:
            raise RuntimeError(f"{case.name}: products differ: {errors}")
        times = call_microseconds(runs, device, rounds=options.rounds, budget_s=20.0, seed=options.seed)
        rows.append(
            {
                "matrix": case.name,
                "nnz": csr.nnz,
                "microseconds": {name: microseconds(samples) for name, samples in times.items()},
                "times_naive": paired_ratio(times[_NAIVE], times[_OURS]),
            }
        )
    return rows


def step_row(width: int, rows: int, device: torch.device, options: argparse.Namespace) -> dict[str, Any]:
    """Times of a training step of one size."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    x = torch.randn(rows, width, device=device, dtype=dtype)
    sides: dict[str, Side] = {}
    for name, layer in (("dense", nn.Linear), ("2:4", SparseTrainingLinear)):
        torch.manual_seed(options.seed)
        make: Callable[[int, int], nn.Module] = layer
        model = nn.Sequential(make(width, 4 * width), nn.GELU(), make(4 * width, width)).to(device, dtype)
        sides[name] = _stepping(model, torch.optim.SGD(model.parameters(), 1e-3), x)
    clock: Any = "device" if device.type == "cuda" else "wall"
    times = interleave(sides, device, rounds=options.rounds, budget_s=30.0, clock=clock, seed=options.seed)
    return {
        "width": width,
        "rows": rows,
        "sides": {name: Summary.of(samples).to_dict() for name, samples in times.items()},
        "times_dense": paired_ratio(times["dense"], times["2:4"]),
    }


def _stepping(model: nn.Module, optimiser: torch.optim.Optimizer, x: Tensor) -> Side:
    def step() -> None:
        optimiser.zero_grad()
        model(x).square().mean().backward()
        optimiser.step()

    return step


def _calling(product: Callable[..., Tensor], *operands: Any) -> Callable[[], Tensor]:
    return lambda: product(*operands)


def _cells(row: dict[str, Any]) -> list[str]:
    times = [number(row["microseconds"][name]["median"], 1) for name in (_OURS, _NAIVE)]
    return [row["matrix"], f"{row['nnz']:,}", *times, number(row["times_naive"]["median"], 2)]


def _step_cells(row: dict[str, Any]) -> list[str]:
    times = [number(row["sides"][name]["median_ms"], 2) for name in ("dense", "2:4")]
    return [str(row["width"]), f"{row['rows']:,}", *times, number(row["times_dense"]["median"], 2)]


if __name__ == "__main__":
    sys.exit(main())
