"""The sweep behind choose_format: which format is fastest, and what a choice by rule loses.

    python -m benchmarks.sparse.formats --device cuda

Matrices of many sparsities, row lengths, block structures and sizes; products with a vector and with 64
columns, float32. The regret of a choice is its time over that of the fastest format: 1 is perfect.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from benchmarks.lib.options import common_parser, configure, parse, picture
from benchmarks.lib.results import number, result, save, show, table
from benchmarks.lib.timing import Side, Summary, interleave
from benchmarks.sparse.matrices import (
    exact_product,
    geometric_mean,
    random_dense,
    relative_error,
    short,
    with_random_values,
)
from sparse_core.common.libraries import module_available
from sparse_core.formats import BSR, CSR, ELL, HYB, SlicedELL, SparseMatrix, generators
from sparse_core.formats.choice.choose import Choice, choose_format, classic_choice
from sparse_core.formats.choice.profile import BLOCK_SIZES, profile_of

Operation = Literal["spmv", "spmm"]
_COLUMNS = 64
#: TF32 rounds the operands of a dense float32 product.
_TOLERANCE = 3e-3
_DENSE_BYTES = 2**30
#: A padded format is left out where it holds more slots than this for each entry.
_SLOTS = 4.0
_BLOCK_FILL = 0.25


class Case(NamedTuple):
    """One matrix of the sweep.

    Attributes:
        group: what varies: sparsity, row lengths, blocks or size.
        name: for tables.
        build: makes it on a device.
    """

    group: str
    name: str
    build: Callable[[torch.device], CSR]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    if options.draw_from:
        _draw(json.loads(options.draw_from.read_text()), options.png or options.draw_from.with_suffix(".png"))
        return 0
    device = torch.device(options.device)
    configure(device, options.threads)
    notes: list[str] = []
    rows = []
    for case in sweep(device, quick=options.quick, seed=options.seed):
        matrix = case.build(device)
        rows += [_measure(case, matrix, operation, options, notes) for operation in options.operations]
        del matrix
        gc.collect()
    settings = {
        "device": options.device,
        "dtype": "float32",
        "columns": _COLUMNS,
        "rounds": options.rounds,
        "threads": options.threads,
        "seed": options.seed,
        "quick": options.quick,
    }
    notes.append(
        "regret: time of the chosen format over that of the fastest, conversions not counted. ELL, SlicedELL"
        " and HYB go through CSR for products with many columns, and for all products on a CPU."
    )
    drawing = module_available("matplotlib")
    if not drawing:
        notes.append("matplotlib is not installed: no picture (--draw-from draws it from the result file)")
    values = result("formats", device, settings, cases=rows, summary=summarise(rows), notes=notes)
    save(values, options)
    if drawing:
        _draw(values, picture(options))
    show(values, _tables(values), notes, as_json=options.json)
    return 0 if all(row["agrees"] for row in rows) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "formats", quick="few small matrices and rounds")
    parser.add_argument("--rounds", type=int, help="measured calls of each format (15; 3 with --quick)")
    parser.add_argument("--operations", nargs="+", choices=("spmv", "spmm"), default=["spmv", "spmm"])
    parser.add_argument("--png", type=Path, help="picture of the regrets (default: next to the result file)")
    parser.add_argument("--draw-from", type=Path, help="measure nothing: draw a result file")
    options = parse(parser, arguments)
    options.rounds = options.rounds or (3 if options.quick else 15)
    return options


def _draw(values: dict[str, Any], path: Path) -> None:
    from benchmarks.sparse.regret_chart import draw

    draw(values, path)


def sweep(device: torch.device, *, quick: bool, seed: int) -> list[Case]:
    """The matrices, sized for the device."""
    gpu = device.type == "cuda"
    side, rows = (8192, 10**6) if gpu else (2048, 10**5)
    if quick:
        side, rows = 256, 1000
        return [
            *_sparsities(side, (0.2, 0.9), seed),
            *_row_lengths(rows, seed)[1::2],
            *_blocks(side, ((16, 0.9, 1.0),), seed),
            *_lengths_of_all(((100, 10),), seed),
        ]
    sizes = tuple((count, 10) for count in (10**3, 10**4, 10**5, 10**6) if count <= rows)
    long_rows = ((rows // 10, 100), (rows // 100, 1000))
    return [
        *_sparsities(side, (0.2, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 0.9999), seed),
        *_sparsities(1024, (0.5, 0.9, 0.99), seed),
        *_row_lengths(rows, seed),
        *_blocks(
            side,
            (
                (64, 0.5, 1.0),
                (64, 0.9, 1.0),
                (64, 0.99, 1.0),
                (64, 0.9, 0.7),
                (64, 0.9, 0.5),
                (64, 0.9, 0.3),
                (32, 0.9, 1.0),
                (16, 0.9, 1.0),
                (16, 0.99, 1.0),
                (8, 0.9, 1.0),
                (8, 0.99, 1.0),
            ),
            seed,
        ),
        *_lengths_of_all((*sizes, *long_rows), seed),
        *_stencils(rows, seed),
    ]


def _sparsities(side: int, shares: Sequence[float], seed: int) -> list[Case]:
    def build(share: float, device: torch.device) -> CSR:
        # Every entry is drawn on its own, so row lengths scatter as they do in pruned matrices.
        generator = torch.Generator(device).manual_seed(seed)
        kept = torch.rand(side, side, generator=generator, device=device) >= share
        # Zero values would be dropped; ones are replaced by normal numbers.
        return with_random_values(CSR.from_dense(kept.float()), seed)

    return [Case("sparsity", f"{side}², {100 * share:g} % zero", partial(build, share)) for share in shares]


def _row_lengths(rows: int, seed: int) -> list[Case]:
    def uniform(device: torch.device) -> CSR:
        return random_lengths(rows, 1, 19, seed, device)

    def zipf(alpha: float, device: torch.device) -> CSR:
        return generators.power_law(rows, alpha=alpha, seed=seed, device=device)

    label = short(rows)
    return [
        Case(
            "row lengths",
            f"{label}, all 10",
            lambda at: generators.random_uniform(rows, per_row=10, seed=seed, device=at),
        ),
        Case("row lengths", f"{label}, 1 to 19", uniform),
        Case("row lengths", f"{label}, Zipf 2.5", partial(zipf, 2.5)),
        Case("row lengths", f"{label}, Zipf 1.8", partial(zipf, 1.8)),
    ]


def random_lengths(rows: int, shortest: int, longest: int, seed: int, device: torch.device) -> CSR:
    """Square, rows of random lengths between two bounds, random columns."""
    generator = torch.Generator(device).manual_seed(seed)
    lengths = torch.randint(shortest, longest + 1, (rows,), generator=generator, device=device)
    full = generators.random_uniform(rows, per_row=longest, seed=seed, device=device)
    place = torch.arange(longest, device=device).repeat(rows)
    kept = place < lengths.repeat_interleave(longest)
    return full.with_values(full.values * kept).without_zeros()


def _blocks(side: int, kinds: Sequence[tuple[int, float, float]], seed: int) -> list[Case]:
    def build(block: int, share: float, fill: float, device: torch.device) -> CSR:
        matrix = generators.block_sparse(
            side, block_size=block, density=1 - share, seed=seed, device=device
        ).to(CSR)
        if fill == 1.0:
            return matrix
        generator = torch.Generator(device).manual_seed(seed)
        kept = torch.rand(matrix.nnz, generator=generator, device=device) < fill
        return matrix.with_values(matrix.values * kept).without_zeros()

    return [
        Case(
            "blocks",
            f"{side}², {block}-blocks, {100 * share:g} % zero"
            + (f", {100 * fill:g} % full" if fill < 1 else ""),
            partial(build, block, share, fill),
        )
        for block, share, fill in kinds
    ]


def _lengths_of_all(kinds: Sequence[tuple[int, int]], seed: int) -> list[Case]:
    def build(rows: int, per_row: int, device: torch.device) -> CSR:
        return generators.random_uniform(rows, per_row=per_row, seed=seed, device=device)

    return [
        Case("size", f"{short(rows)} rows of {per_row}", partial(build, rows, per_row))
        for rows, per_row in kinds
    ]


def _stencils(rows: int, seed: int) -> list[Case]:
    flat, deep = round(rows**0.5), round(rows ** (1 / 3))

    def build(make: Callable[..., CSR], side: int, device: torch.device) -> CSR:
        return with_random_values(make(side, device=device), seed)

    return [
        Case("size", f"2-D 5 points, {flat}²", partial(build, generators.poisson_2d, flat)),
        Case("size", f"3-D 7 points, {deep}³", partial(build, generators.poisson_3d, deep)),
        Case("size", f"3-D 27 points, {deep}³", partial(build, generators.stencil_27, deep)),
    ]


def _measure(
    case: Case, matrix: CSR, operation: Operation, options: argparse.Namespace, notes: list[str]
) -> dict[str, Any]:
    device = matrix.device
    shape = (matrix.shape[1],) if operation == "spmv" else (matrix.shape[1], _COLUMNS)
    dense = random_dense(*shape, device=device, seed=options.seed + 1)
    profile = profile_of(matrix)
    ours = choose_format(matrix, operation=operation, reuse=10**6)
    classic = classic_choice(matrix, operation)
    formats = _formats(matrix, operation, (ours, classic))
    exact = exact_product(matrix, dense)
    errors = {name: relative_error(_multiply(entry, dense), exact) for name, entry in formats.items()}
    wrong = [name for name, error in errors.items() if error > _TOLERANCE]
    notes += [f"{case.name}, {operation}: {name} is off by {errors[name]:.1e}" for name in wrong]
    sides: dict[str, Side] = {name: partial(_multiply, entry, dense) for name, entry in formats.items()}
    samples = interleave(
        sides, device, rounds=options.rounds, warmup=1, budget_s=6.0, clock="device", seed=options.seed
    )
    times = {name: median(values) for name, values in samples.items()}
    best = min(times, key=lambda name: times[name])
    return {
        "group": case.group,
        "name": case.name,
        "operation": operation,
        "shape": list(matrix.shape),
        "nnz": matrix.nnz,
        "sparsity": round(profile.sparsity, 6),
        "longest_row": profile.longest,
        "mean_row": round(profile.mean, 2),
        "padding": round(profile.padding, 3),
        "agrees": not wrong,
        "time": {name: Summary.of(values).to_dict() for name, values in samples.items()},
        "best": best,
        "ours": {"format": label(ours), "regret": round(times[label(ours)] / times[best], 3)},
        "classic": {"format": label(classic), "regret": round(times[label(classic)] / times[best], 3)},
    }


def label(choice: Choice) -> str:
    """Name of a choice in the tables: block sizes tell BSR apart."""
    block = choice.options.get("block_size")
    return f"{choice.name} {block[0]}" if block else choice.name


def _multiply(matrix: SparseMatrix | Tensor, dense: Tensor) -> Tensor:
    product: Tensor = matrix @ dense
    return product


def _formats(
    matrix: CSR, operation: Operation, choices: Sequence[Choice]
) -> dict[str, SparseMatrix | Tensor]:
    """Every format that may be fastest, and those that were chosen."""
    profile = profile_of(matrix)
    gpu = matrix.device.type == "cuda"
    found: dict[str, SparseMatrix | Tensor] = {"CSR": matrix}
    if matrix.dtype.itemsize * matrix.shape[0] * matrix.shape[1] <= _DENSE_BYTES:
        found["dense"] = matrix.to_dense()
    if gpu and operation == "spmv":
        if profile.longest <= _SLOTS * profile.mean:
            found["ELL"] = matrix.to(ELL)
        if profile.padding <= _SLOTS:
            found["SlicedELL"] = matrix.to(SlicedELL)
        found["SlicedELL sorted"] = matrix.to(SlicedELL, sort_window=4096)
        found["HYB"] = matrix.to(HYB)
    for size in BLOCK_SIZES:
        if gpu and profile.block_fill[size] >= _BLOCK_FILL:
            found[f"BSR {size}"] = matrix.to(BSR, block_size=size)
    for choice in choices:
        if label(choice) not in found:
            found[label(choice)] = choice.convert(matrix)
    return found


def summarise(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Geometric mean and worst regret of both choices, by operation."""
    found: dict[str, Any] = {}
    for operation in dict.fromkeys(row["operation"] for row in rows):
        chosen = [row for row in rows if row["operation"] == operation]
        found[operation] = {}
        for rule in ("ours", "classic"):
            worst = max(chosen, key=lambda row: float(row[rule]["regret"]))
            found[operation][rule] = {
                "geometric_mean": round(geometric_mean(row[rule]["regret"] for row in chosen), 3),
                "worst": worst[rule]["regret"],
                "worst_case": worst["name"],
                "fastest_in": sum(row[rule]["regret"] <= 1.05 for row in chosen),
                "cases": len(chosen),
            }
    return found


def _tables(values: dict[str, Any]) -> list[Any]:
    cases = table(
        "Fastest format and the choices by rule",
        ["matrix", "product", "fastest", "ms", "ours", "regret", "classic", "regret", "CSR ms", "dense ms"],
        (
            [
                row["name"],
                row["operation"],
                row["best"],
                number(row["time"][row["best"]]["median_ms"], 4),
                row["ours"]["format"],
                f"{row['ours']['regret']:.2f}",
                row["classic"]["format"],
                f"{row['classic']['regret']:.2f}",
                number(row["time"]["CSR"]["median_ms"], 4),
                number(row["time"].get("dense", {}).get("median_ms"), 4),
            ]
            for row in values["cases"]
        ),
    )
    summary = table(
        "Regret",
        ["product", "rule", "geometric mean", "worst", "where", "within 5 % of the fastest"],
        (
            [
                operation,
                rule,
                f"{entry['geometric_mean']:.2f}",
                f"{entry['worst']:.2f}",
                entry["worst_case"],
                f"{entry['fastest_in']} of {entry['cases']}",
            ]
            for operation, rules in values["summary"].items()
            for rule, entry in rules.items()
        ),
    )
    return [cases, summary]


if __name__ == "__main__":
    sys.exit(main())
