"""Products called one by one, as a program calls them, beside torch's own call."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.calls_rows import beside, timed
from benchmarks.timing import interleave
from sparse_core.attention import local_window, sparse_attention
from sparse_core.formats import CSR, generators
from sparse_core.linalg import spmm, spmv
from sparse_core.nm import SparseLinear, prune

#: Of torch's time, ours takes at most this many times.
_LEAST = 0.97
#: Calls of a sample: one of them is too short for the clock.
_CALLS = 20


def products(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """``spmv``, ``spmm``, ``SparseLinear`` and ``sparse_attention``, eagerly."""
    with torch.inference_mode():
        return [
            _row(name, ours, theirs, options)
            for make in (_matrices, _layers, _attention)
            for name, ours, theirs in make(options)
        ]


Case = tuple[str, Callable[[], object], Callable[[], object]]


def _matrices(options: argparse.Namespace) -> list[Case]:
    device, seed = torch.device(options.device), options.seed
    rows = 1_000_000 if device.type == "cuda" and not options.quick else 20_000
    made: dict[str, CSR] = {
        f"uniform random, {rows:,} x 10": generators.random_uniform(
            rows, per_row=10, seed=seed, device=device
        ),
        f"power law, {rows:,}": generators.power_law(rows, alpha=1.8, seed=seed, device=device),
        "uniform random, 2,000 x 10": generators.random_uniform(2000, per_row=10, seed=seed, device=device),
    }
    cases: list[Case] = []
    for name, matrix in made.items():
        theirs = matrix.to_torch()
        vector = torch.randn(matrix.shape[1], device=device, dtype=matrix.dtype)
        several = torch.randn(matrix.shape[1], 32, device=device, dtype=matrix.dtype)
        cases.append((f"spmv, {name}", _bound(spmv, matrix, vector), _bound(torch.mv, theirs, vector)))
        cases.append(
            (f"spmm by 32, {name}", _bound(spmm, matrix, several), _bound(torch.mm, theirs, several))
        )
    return cases


def _layers(options: argparse.Namespace) -> list[Case]:
    device = torch.device(options.device)
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    sizes = (
        ((300, 1000, 1000),) if options.quick else ((300, 1000, 1000), (1024, 4096, 1024), (4096, 3072, 768))
    )
    cases: list[Case] = []
    for rows, width, outputs in sizes:
        dense = nn.Linear(width, outputs, device=device, dtype=dtype).eval()
        prune(dense, 2, 4)
        sparse = SparseLinear.from_dense(dense)
        given = torch.randn(rows, width, device=device, dtype=dtype)
        cases.append(
            (f"SparseLinear, {rows} x {width} x {outputs}", _bound(sparse, given), _bound(dense, given))
        )
    return cases


def _attention(options: argparse.Namespace) -> list[Case]:
    device = torch.device(options.device)
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    length = 256 if options.quick else 1024
    pattern = local_window(length, window=length // 8, block_size=64).to(device)
    q, k, v = (torch.randn(1, 8, length, 64, device=device, dtype=dtype) for _ in range(3))
    return [
        (
            f"sparse_attention, {length} tokens",
            _bound(sparse_attention, q, k, v, pattern),
            _bound(functional.scaled_dot_product_attention, q, k, v),
        )
    ]


def _bound(call: Callable[..., object], *given: Any) -> Callable[[], object]:
    def called() -> None:
        for _ in range(_CALLS):
            call(*given)

    return called


def _row(
    name: str, ours: Callable[[], object], theirs: Callable[[], object], options: argparse.Namespace
) -> dict[str, Any]:
    sides = {"ours": ours, "torch": theirs}
    samples = interleave(sides, torch.device(options.device), rounds=options.rounds, warmup=1, budget_s=20.0)
    a_call = {side: [sample / _CALLS for sample in taken] for side, taken in samples.items()}
    row = timed(name, a_call["ours"], **beside("torch's own call", a_call["torch"], a_call["ours"]))
    return row | {"aim_times": _LEAST, "met": row["times"] >= _LEAST}
