"""Sparse matrix times vector: each format and kernel against torch's CSR (cuSPARSE, MKL on a CPU).

    python -m benchmarks.sparse.spmv --device cuda

Stencils, random rows, power-law rows, blocks, an arrow and few long rows, float32. Every side must agree with
a float64 product before it is timed. A large copy is timed in the same rounds: its bandwidth is what a
product can hope for. On a GPU the automatic kernel and torch's are also timed in CUDA graphs and called.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.lib.graphs import call_microseconds, microseconds
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.lib.timing import Side, Summary, interleave, paired_ratio, time_once
from benchmarks.publish.screen import tables
from benchmarks.sparse.matrices import (
    Case,
    cases,
    exact_product,
    fresh,
    geometric_mean,
    long_row_cases,
    noted,
    random_dense,
    relative_error,
)
from sparse_core.common.libraries import module_available
from sparse_core.formats import BSR, CSR, ELL, CompactCSR, SlicedELL, SparseMatrix
from sparse_core.formats.choice.choose import choose_format
from sparse_core.formats.choice.profile import Profile, profile_of
from sparse_core.linalg import spmv
from sparse_core.linalg.spmv.plan import PatternPlan, pattern_plan

OPPONENT = "torch CSR"
AUTO, CHOSEN, COMPACT, DENSE, COPY = "CSR", "chosen", "CompactCSR", "dense", "copy"
#: CSR kernels that read every column index; the fastest of them is "plain CSR".
_PLAIN = ("CSR scalar", "CSR vector", "CSR adaptive", "CSR merge")
_CALLED = "called"
_WAYS = ("in a graph", _CALLED)
_TOLERANCE, _HALF_TOLERANCE = 2e-5, 5e-3
_COPY_BYTES = {"cuda": 2**30, "cpu": 2**28}
_DENSE_LIMIT = 2**30
_ELL_SLOTS = 2.0
_BLOCK_FILL = 0.25


class Candidate(NamedTuple):
    """One side of a comparison.

    Attributes:
        call: the product.
        bytes: what it must read and write once: matrix, x and y.
        tolerance: largest error, relative to the largest exact number.
    """

    call: Callable[[], Tensor]
    bytes: int
    tolerance: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    device = torch.device(options.device)
    configure(device, options.threads)
    notes: list[str] = []
    rows = []
    given = {"quick": options.quick, "seed": options.seed}
    for case in [*cases(device, **given), *long_row_cases(device, **given)]:
        if options.only and options.only not in case.name:
            continue
        rows.append(_measure(case, device, options, notes))
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    settings = {
        "device": options.device,
        "dtype": "float32",
        "rounds": options.rounds,
        "threads": options.threads,
        "seed": options.seed,
        "quick": options.quick,
        "copy_bytes": _copy_bytes(device, options),
    }
    notes.append(
        "GB/s counts matrix, x and y once; where a kernel finds columns by row patterns, what it reads"
        " instead. 'of copy' is the share of the bandwidth of a large copy in the same rounds; over 100 %"
        " means that part of the matrix stayed in the cache."
    )
    values = result("spmv", device, settings, cases=rows, summary=_summary(rows), notes=notes)
    save(values, options)
    show(values, tables(values, "spmv", "spmv-kernels", "conversions"), notes, as_json=options.json)
    return 0 if all(side["agrees"] for row in rows for side in row["sides"].values()) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "spmv", quick="smaller matrices and fewer rounds")
    parser.add_argument("--rounds", type=int, help="measured calls of each side (30; 5 with --quick)")
    parser.add_argument("--only", help="measure only matrices whose name contains this")
    options = parse(parser, arguments)
    options.rounds = options.rounds or (5 if options.quick else 30)
    return options


def _measure(
    case: Case, device: torch.device, options: argparse.Namespace, notes: list[str]
) -> dict[str, Any]:
    matrix = case.build(device)
    profile = profile_of(matrix)
    x = random_dense(matrix.shape[1], device=device, seed=options.seed + 1)
    exact = exact_product(matrix, x)
    choice = choose_format(matrix, operation="spmv", reuse=10_000)
    candidates = _candidates(matrix, choice.convert(matrix), profile, x)
    errors = {name: relative_error(entry.call(), exact) for name, entry in candidates.items()}
    del exact
    source = torch.zeros(_copy_bytes(device, options) // 4, device=device)
    target = torch.empty_like(source)
    sides: dict[str, Side] = {name: entry.call for name, entry in candidates.items()}
    sides[COPY] = partial(target.copy_, source)
    samples = interleave(
        sides, device, rounds=options.rounds, warmup=2, budget_s=20.0, clock="device", seed=options.seed
    )
    bandwidth = 2 * source.nbytes / 1e6 / median(samples[COPY])
    del source, target, sides
    found: dict[str, Any] = {}
    for name, entry in candidates.items():
        rate = entry.bytes / 1e6 / median(samples[name])
        found[name] = {
            "time": Summary.of(samples[name]).to_dict(),
            "bytes": entry.bytes,
            "gb_s": round(rate, 1),
            "of_copy": round(rate / bandwidth, 3),
            "speedup": paired_ratio(samples[OPPONENT], samples[name]),
            "error": noted(errors[name]),
            "agrees": errors[name] <= entry.tolerance,
        }
        if errors[name] > entry.tolerance:
            notes.append(f"{case.name}: {name} is off by {errors[name]:.1e} of the largest number")
    plain = [name for name in _PLAIN if name in samples] or [AUTO]
    plain_best = min(plain, key=lambda name: median(samples[name]))
    return {
        "name": case.name,
        "shape": list(matrix.shape),
        "nnz": matrix.nnz,
        "longest_row": profile.longest,
        "copy_gb_s": round(bandwidth, 1),
        "chosen": {"name": choice.name, "options": choice.options},
        "sides": found,
        "plain_csr": plain_best,
        "compact_over_plain_csr": paired_ratio(samples[plain_best], samples[COMPACT]),
        "conversions": _conversions(matrix, profile, x, median(samples[AUTO]), device),
        "calls": _calls(candidates, device, options) if device.type == "cuda" else None,
    }


def _calls(
    candidates: dict[str, Candidate], device: torch.device, options: argparse.Namespace
) -> dict[str, Any]:
    """Microseconds of a product in CUDA graphs and called, and how much faster than torch's it is."""
    runs = {f"{name}, {way}": candidates[name].call for name in (OPPONENT, AUTO) for way in _WAYS}
    samples = call_microseconds(
        runs,
        device,
        rounds=options.rounds,
        budget_s=5.0,
        seed=options.seed,
        eager={name for name in runs if name.endswith(_CALLED)},
    )
    return {
        "microseconds": {name: microseconds(times) for name, times in samples.items()},
        "speedup": {
            way: paired_ratio(samples[f"{OPPONENT}, {way}"], samples[f"{AUTO}, {way}"]) for way in _WAYS
        },
    }


def _copy_bytes(device: torch.device, options: argparse.Namespace) -> int:
    return int(_COPY_BYTES[device.type] // (16 if options.quick else 1))


def _candidates(
    matrix: CSR, chosen: SparseMatrix | Tensor, profile: Profile, x: Tensor
) -> dict[str, Candidate]:
    vectors = x.nbytes + matrix.shape[0] * x.itemsize
    kernels = _has_kernels(matrix)
    pattern = pattern_plan(matrix) if kernels else None
    plain = matrix.nbytes + vectors
    library = matrix.to_torch()
    found = {
        OPPONENT: Candidate(lambda: library @ x, plain, _TOLERANCE),
        AUTO: Candidate(lambda: spmv(matrix, x), _csr_bytes(matrix, pattern) + vectors, _TOLERANCE),
        CHOSEN: Candidate(lambda: chosen @ x, _bytes(chosen, kernels=kernels) + vectors, _TOLERANCE),
    }
    if kernels:
        for method in ("scalar", "vector", "adaptive", "merge"):
            found[f"CSR {method}"] = Candidate(partial(spmv, matrix, x, method=method), plain, _TOLERANCE)
        if pattern is not None:
            found["CSR pattern"] = Candidate(
                partial(spmv, matrix, x, method="pattern"), _csr_bytes(matrix, pattern) + vectors, _TOLERANCE
            )
    for name, build in _conversion_recipes(profile).items():
        if kernels or name in (DENSE, COMPACT):
            other = build(matrix)
            tolerance = _HALF_TOLERANCE if name in (COMPACT, DENSE) else _TOLERANCE
            found[name] = Candidate(
                partial(_multiply, other, x), _bytes(other, kernels=kernels) + vectors, tolerance
            )
    return found


def _has_kernels(matrix: CSR) -> bool:
    """Return True if each format has its own kernel; on a CPU the library multiplies CSR."""
    return matrix.device.type == "cuda" and module_available("triton")


def _multiply(matrix: SparseMatrix | Tensor, x: Tensor) -> Tensor:
    product: Tensor = matrix @ x
    return product


def _conversion_recipes(profile: Profile) -> dict[str, Callable[[CSR], SparseMatrix | Tensor]]:
    """Return the conversions of a matrix to each suitable format."""
    recipes: dict[str, Callable[[CSR], SparseMatrix | Tensor]] = {
        "SlicedELL": lambda matrix: matrix.to(SlicedELL),
        COMPACT: lambda matrix: matrix.to(CompactCSR),
    }
    if profile.longest * profile.shape[0] <= _ELL_SLOTS * profile.nnz:
        recipes["ELL"] = lambda matrix: matrix.to(ELL)
    size = max(profile.block_fill, key=lambda size: (round(profile.block_fill[size], 2), size))
    if profile.block_fill[size] >= _BLOCK_FILL:
        recipes[f"BSR {size}"] = lambda matrix: matrix.to(BSR, block_size=size)
    if 4 * profile.shape[0] * profile.shape[1] <= _DENSE_LIMIT and profile.sparsity < 0.99:
        recipes[DENSE] = lambda matrix: matrix.to_dense()
    return recipes


def _bytes(matrix: SparseMatrix | Tensor, *, kernels: bool) -> int:
    """Bytes that one product must read of a matrix."""
    if kernels and isinstance(matrix, CSR):
        return _csr_bytes(matrix, pattern_plan(matrix))
    if kernels and isinstance(matrix, SlicedELL) and (plan := pattern_plan(matrix)) is not None:
        return matrix.nbytes - matrix.col.nbytes - matrix.lengths.nbytes + _pattern_bytes(plan)
    return matrix.nbytes


def _csr_bytes(matrix: CSR, plan: PatternPlan | None) -> int:
    return matrix.nbytes if plan is None else matrix.nbytes - matrix.col.nbytes + _pattern_bytes(plan)


def _pattern_bytes(plan: PatternPlan) -> int:
    return plan.pattern.nbytes + plan.offsets.nbytes + plan.lengths.nbytes


def _conversions(
    matrix: CSR, profile: Profile, x: Tensor, product_ms: float, device: torch.device
) -> dict[str, Any]:
    """Time to convert, to choose, and to plan the first product, in products of the automatic CSR kernel."""
    actions: dict[str, Callable[[CSR], object]] = {
        "choose_format": choose_format,
        "first product": lambda matrix: spmv(matrix, x),
        **_conversion_recipes(profile),
    }
    found = {}
    for name, action in actions.items():
        # A fresh matrix every time: plans and profiles are kept on it.
        times = [time_once(partial(action, fresh(matrix)), device) for _ in range(4)][1:]
        found[name] = {
            "median_ms": round(median(times), 4),
            "products": round(median(times) / product_ms, 1),
        }
    return found


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Geometric mean and worst case over the matrices."""

    def over(ratios: dict[str, float]) -> dict[str, Any]:
        worst = min(ratios, key=lambda name: ratios[name])
        return {
            "geometric_mean": round(geometric_mean(ratios.values()), 3),
            "worst": ratios[worst],
            "worst_matrix": worst,
        }

    if not rows:
        return {}
    speedups = {
        name: {row["name"]: row["sides"][name]["speedup"]["median"] for row in rows}
        for name in (AUTO, CHOSEN, COMPACT)
    }
    compact = {row["name"]: row["compact_over_plain_csr"]["median"] for row in rows}
    return {
        "CSR over torch CSR": over(speedups[AUTO]),
        "chosen format over torch CSR": over(speedups[CHOSEN]),
        "CompactCSR over torch CSR": over(speedups[COMPACT]),
        "CompactCSR over plain CSR": over(compact),
    }


if __name__ == "__main__":
    sys.exit(main())
