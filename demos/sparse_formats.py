"""Look at a sparse matrix, choose its format, and time the product in every format that fits.

MATRIX is a Matrix Market file (.mtx, .mtx.gz), a scipy .npz, or a generator with its size, such as
poisson-2d:512, power-law:100000 or block-sparse:4096x4096x64. All products are checked before any is timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor

from sparse_core.commands import failure, reported_file_errors
from sparse_core.formats import (
    BSR,
    COO,
    CSR,
    ELL,
    HYB,
    NM,
    CompactCSR,
    Description,
    SlicedELL,
    SparseMatrix,
    choose_format,
    load_matrix,
)
from sparse_core.formats.generators import generate
from sparse_core.formats.summary.picture import spy_picture, timing_picture
from sparse_core.linalg import spmm, spmv

FORMATS: tuple[type[SparseMatrix], ...] = (COO, CSR, ELL, SlicedELL, HYB, BSR, NM, CompactCSR)
OTHERS = ("torch CSR", "dense")
Side = Callable[[], Tensor]
TURNS, BUDGET_S = 100, 3.0


def load(name: str, device: str) -> SparseMatrix:
    """A file where there is one or the name looks like one, else a generator's matrix."""
    if Path(name).exists() or name.lower().endswith((".mtx", ".mtx.gz", ".npz")):
        return load_matrix(name, device=device)
    return generate(name, device=device)


def products(
    matrix: SparseMatrix, dense: Tensor, description: Description, limit: int
) -> tuple[dict[str, Side], dict[str, str]]:
    """Functions that multiply, by format; and why the other formats are left out."""
    multiply = spmv if dense.ndim == 1 else spmm
    chosen = choose_format(matrix, operation="spmv" if dense.ndim == 1 else "spmm")
    sizes, left_out = description.format_nbytes, dict(description.misfits)
    large = {name: size for name, size in sizes.items() if size is not None and size > limit}
    left_out |= {name: f"would take {size / 2**30:.1f} GiB" for name, size in large.items()}
    sides: dict[str, Side] = {}
    for target in FORMATS:
        name = target.__name__
        if name not in left_out:
            stored = chosen.convert(matrix) if chosen.name == name else matrix.to(target)
            sides[name] = partial(multiply, stored, dense)
    sides["torch CSR"] = partial(torch.matmul, matrix.to(CSR).to_torch(), dense)
    if "dense" not in left_out:
        sides["dense"] = partial(torch.matmul, matrix.to_dense(), dense)
    return sides, left_out


def check(sides: dict[str, Side], matrix: SparseMatrix, dense: Tensor) -> None:
    """Stop unless every side gives the product in double precision, up to the rounding of its sums."""
    wide = torch.complex128 if matrix.dtype.is_complex else torch.float64
    dense = dense.to(wide)
    for name, side in sides.items():
        # Compact values are halves: what they stand for is known only once they are rounded.
        csr = (matrix.to(CompactCSR) if name == "CompactCSR" else matrix).to(CSR).to(wide)
        found, expected = side().to(wide), csr @ dense
        bound = (
            32
            * torch.finfo(matrix.dtype).eps
            * (csr.with_values(csr.values.abs().to(wide)) @ dense.abs().to(wide))
        )
        same = (found == expected) | ((found - expected).abs() <= bound.abs())
        same |= found.isnan() & expected.isnan()
        if not same.all():
            raise SystemExit(
                f"sparse_formats: {name} disagrees in {int((~same).sum())} of {same.numel()} results"
            )


def measure(sides: dict[str, Side], device: torch.device, console: Console) -> dict[str, float]:
    """Median milliseconds; the sides take turns, so that what else the machine does meets all of them."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    samples: dict[str, list[float]] = {name: [] for name in sides}
    started = time.perf_counter()
    with Progress(console=console, transient=True) as progress:
        for turn in progress.track(range(TURNS), description="timing"):
            if turn > 5 and time.perf_counter() - started > BUDGET_S:
                break
            for name, side in sides.items():
                wait()
                begin = time.perf_counter()
                side()
                wait()
                samples[name].append((time.perf_counter() - begin) * 1e3)
    # The first turn warms up.
    return {name: statistics.median(taken[1:]) for name, taken in samples.items()}


def parse() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("matrix", nargs="?", default="poisson-2d:64", metavar="MATRIX")
    parser.add_argument("--operation", choices=("spmv", "spmm"), default="spmv")
    parser.add_argument("--columns", type=int, default=32, help="of the dense matrix for spmm")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument(
        "--limit-gib", type=float, default=1.0, help="leave out formats that take more memory"
    )
    parser.add_argument("--out", type=Path, default=Path("out/sparse_formats"))
    parser.add_argument("--json", action="store_true", help="print the results as JSON and nothing else")
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device here")
    if options.columns < 1:
        parser.error(f"--columns must be at least 1, got {options.columns}")
    return options


def main() -> None:
    """Run the demo."""
    options = parse()
    try:
        matrix = load(options.matrix, options.device)
    except (OSError, ValueError) as error:
        sys.exit(f"sparse_formats: {failure(error)}")
    options.out.mkdir(parents=True, exist_ok=True)
    description = matrix.describe()
    choice = choose_format(matrix, operation=options.operation)

    generator = torch.Generator().manual_seed(0)
    shape = (matrix.shape[1],) if options.operation == "spmv" else (matrix.shape[1], options.columns)
    dense = torch.randn(shape, generator=generator, dtype=torch.float64).to(matrix.device, matrix.dtype)
    sides, left_out = products(matrix, dense, description, int(options.limit_gib * 2**30))
    check(sides, matrix, dense)
    times = measure(sides, matrix.device, Console(stderr=True, quiet=options.json))

    product = "y = A x" if options.operation == "spmv" else f"Y = A X, {options.columns} columns"
    title = f"{product}: {Path(options.matrix).name}, {description.dtype} on {description.device}"
    pictures = [
        timing_picture(times, options.out / "timings.png", title=title, chosen=choice.name, others=OTHERS)
    ]
    if all(matrix.shape):
        pictures.insert(0, spy_picture(matrix, options.out / "spy.png"))
    if options.json:
        report = {"matrix": options.matrix, "operation": options.operation, "choice": choice.name}
        report |= {"reason": choice.reason, "times_ms": times, "left_out": left_out}
        print(json.dumps({**report, "description": description.to_dict(), "pictures": [*map(str, pictures)]}))
        return
    print(f"{description}\n\n{title}\nchoice for {options.operation}: {choice}")
    show(times, description.format_nbytes, left_out, choice.name)
    print("all agree; pictures:", *pictures)


def show(
    times: dict[str, float], sizes: dict[str, int | None], left_out: dict[str, str], chosen: str
) -> None:
    """Print the table of times, fastest first."""
    table = Table("format", box=None, pad_edge=False)
    for heading in ("bytes", "ms", "torch CSR / this"):
        table.add_column(heading, justify="right")
    for name in sorted(times, key=times.__getitem__):
        size = sizes["CSR" if name == "torch CSR" else name]
        mark = f"{name} *" if name == chosen else name
        table.add_row(mark, f"{size:,}", f"{times[name]:.4f}", f"{times['torch CSR'] / times[name]:.2f}")
    Console().print(table)
    for name, reason in left_out.items():
        print(f"left out: {name}, {reason}")


if __name__ == "__main__":
    with reported_file_errors("sparse_formats"):
        main()
