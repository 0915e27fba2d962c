"""Products called eagerly, compared with torch's own call."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.calls.rows import beside, timed
from benchmarks.layers.nm_choice import chosen, way
from benchmarks.lib.timing import Summary, interleave
from sparse_core.attention import BlockPattern, local_window, random_blocks, sparse_attention
from sparse_core.formats import COO, CSR, generators
from sparse_core.kernels.launch_plan import SWITCH
from sparse_core.linalg import spmm, spmv
from sparse_core.nm import SparseLinear, prune

#: Target: our time over torch's.
_LEAST = 0.97
#: Calls of a sample: one of them is too short for the clock.
_CALLS = 20
_BUDGET_S = 4.0
#: Entries, multiplications and scores of a case that a CPU, or a quick run, takes.
_SMALL = 1 << 22


class Sides(NamedTuple):
    """Calls of ours and of torch's, and what is noted of ours after them."""

    ours: Callable[[], object]
    theirs: Callable[[], object]
    noted: Callable[[], dict[str, Any]] = dict


def products(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """``spmv``, ``spmm``, ``SparseLinear`` and ``sparse_attention``, eagerly, in forty cases."""
    with torch.inference_mode():
        return [
            _row(name, sides, options)
            for cases in (_matrices, _layers, _attention)
            for name, sides in cases(options)
        ]


def plans(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The same cases with launch plans and without, interleaved: what a plan saves a call."""
    with torch.inference_mode():
        return [
            _saving(name, with_plan, without, options)
            for cases in (_matrices, _layers, _attention)
            for (name, without), (_, with_plan) in zip(
                _switched(cases(options), "0"), _switched(cases(options), "1"), strict=True
            )
        ]


@contextmanager
def launch_plans(value: str) -> Iterator[None]:
    """Set the switch of launch plans, ``"0"`` or ``"1"``, for a while."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = value
    try:
        yield
    finally:
        del os.environ[SWITCH]
        if before is not None:
            os.environ[SWITCH] = before


def _switched(cases: Iterator[tuple[str, Sides]], value: str) -> Iterator[tuple[str, Sides]]:
    """Make each case, and call it until its plans are made, with the switch at a value."""
    while True:
        with launch_plans(value):
            case = next(cases, None)
            if case is None:
                return
            case[1].ours()
        yield case


def _saving(name: str, with_plan: Sides, without: Sides, options: argparse.Namespace) -> dict[str, Any]:
    called = {"with": with_plan.ours, "without": without.ours}
    samples = interleave(
        called, torch.device(options.device), rounds=options.rounds, warmup=1, budget_s=_BUDGET_S
    )
    a_call = {side: [sample / _CALLS for sample in taken] for side, taken in samples.items()}
    medians = {side: Summary.of(taken).median_ms for side, taken in a_call.items()}
    saved = {"saved_us": round(1e3 * (medians["without"] - medians["with"]), 2)}
    other = beside(f"{SWITCH}=0", a_call["without"], a_call["with"])
    return timed(name, a_call["with"], **other, **saved) | with_plan.noted()


def _small(options: argparse.Namespace) -> bool:
    return bool(options.quick or options.device == "cpu")


def _matrices(options: argparse.Namespace) -> Iterator[tuple[str, Sides]]:
    made: dict[str, tuple[int, Callable[..., CSR]]] = {
        "uniform random, 1,000,000 x 10": (10_000_000, _uniform(1_000_000)),
        "uniform random, 20,000 x 4,000,000, 100 a row": (2_000_000, _uniform(20_000, 4_000_000, 100)),
        "uniform random, 2,000 x 10": (20_000, _uniform(2_000)),
        "uniform random, 100 x 5": (500, _uniform(100, per_row=5)),
        "uniform random, 2,000 x 2,000, 500 a row": (1_000_000, _uniform(2_000, 2_000, 500)),
        "power law, 1,000,000": (22_000_000, lambda **to: generators.power_law(1_000_000, alpha=1.8, **to)),
        "power law, 50,000": (1_000_000, lambda **to: generators.power_law(50_000, alpha=1.8, **to)),
        "arrow, 100,000": (300_000, _arrow),
        "2-D 5 points, 1024²": (5_000_000, lambda seed, **to: generators.poisson_2d(1024, **to)),
        "3-D 27 points, 32³": (900_000, lambda seed, **to: generators.stencil_27(32, **to)),
    }
    device = torch.device(options.device)
    for name, (entries, generate) in made.items():
        if _small(options) and entries * 32 > _SMALL:
            continue
        matrix = generate(seed=options.seed, device=device)
        theirs = matrix.to_torch()
        vector = torch.randn(matrix.shape[1], device=device, dtype=matrix.dtype)
        several = torch.randn(matrix.shape[1], 32, device=device, dtype=matrix.dtype)
        yield f"spmv, {name}", Sides(_bound(spmv, matrix, vector), _bound(torch.mv, theirs, vector))
        ours = _bound(spmm, matrix, several)
        yield f"spmm by 32, {name}", Sides(ours, _bound(torch.mm, theirs, several))


def _uniform(rows: int, columns: int | None = None, per_row: int = 10) -> Callable[..., CSR]:
    return lambda **to: generators.random_uniform(rows, columns, per_row, **to)


def _arrow(*, seed: int, device: torch.device, size: int = 100_000) -> CSR:
    """Full in the first row, the first column and the diagonal."""
    every, first = torch.arange(size), torch.zeros(size, dtype=torch.int64)
    row = torch.cat([first, every[1:], every[1:]])
    column = torch.cat([every, first[1:], every[1:]])
    values = torch.randn(len(row), generator=torch.Generator().manual_seed(seed))
    return COO(row, column, values, (size, size)).to(CSR).to(device)


#: Rows of the input, its width, and outputs.
_LAYERS = (
    (300, 1000, 1000),
    (1024, 4096, 1024),
    (4096, 3072, 768),
    (4096, 768, 3072),
    (1, 4096, 4096),
    (16, 4096, 4096),
    (32, 768, 3072),
    (64, 1024, 1024),
    (256, 1024, 1024),
    (512, 2048, 2048),
    (4096, 4096, 4096),
    (16384, 1024, 1024),
)


def _layers(options: argparse.Namespace) -> Iterator[tuple[str, Sides]]:
    device = torch.device(options.device)
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    for rows, width, outputs in _LAYERS:
        if _small(options) and rows * width * outputs > 20 * _SMALL:
            continue
        dense = nn.Linear(width, outputs, device=device, dtype=dtype).eval()
        prune(dense, 2, 4)
        sparse = SparseLinear.from_dense(dense)
        given = torch.randn(rows, width, device=device, dtype=dtype)
        sides = Sides(_bound(sparse, given), _bound(dense, given), partial(_chosen, sparse, rows))
        yield f"SparseLinear, {rows} x {width} x {outputs}", sides


def _attention(options: argparse.Namespace) -> Iterator[tuple[str, Sides]]:
    made: dict[str, tuple[int, tuple[int, int, int], Callable[[], BlockPattern]]] = {
        "1024 tokens, window": (1024, (1, 8, 64), lambda: local_window(1024, window=128, block_size=64)),
        "1024 tokens, 30 % of the blocks": (1024, (1, 8, 64), _random(1024, 0.3)),
        "1024 tokens, 30 %, batch of 8": (1024, (8, 8, 64), _random(1024, 0.3)),
        "256 tokens, half": (256, (1, 8, 64), _random(256, 0.5)),
        "512 tokens, 30 %, heads of 128": (512, (4, 16, 128), _random(512, 0.3)),
        "2048 tokens, 30 %": (2048, (1, 16, 64), _random(2048, 0.3)),
        "4096 tokens, window": (4096, (1, 16, 64), lambda: local_window(4096, window=256, block_size=64)),
        "16384 tokens, 5 %": (16384, (1, 8, 128), _random(16384, 0.05)),
    }
    device = torch.device(options.device)
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    for name, (length, (batch, heads, dim), build) in made.items():
        if _small(options) and batch * heads * length**2 > _SMALL:
            continue
        pattern = build().to(device)
        q, k, v = (torch.randn(batch, heads, length, dim, device=device, dtype=dtype) for _ in range(3))
        ours = _bound(sparse_attention, q, k, v, pattern)
        theirs = _bound(functional.scaled_dot_product_attention, q, k, v)
        yield f"sparse_attention, {name}", Sides(ours, theirs)


def _random(length: int, density: float) -> Callable[[], BlockPattern]:
    return lambda: random_blocks(length, density, 64, seed=0)


def _bound(call: Callable[..., Tensor], *given: Any) -> Callable[[], object]:
    def called() -> None:
        for _ in range(_CALLS):
            call(*given)

    return called


def _chosen(layer: SparseLinear, rows: int) -> dict[str, Any]:
    """Return the chosen implementation, and its time and the dense product's in graphs when it was chosen."""
    found = chosen(layer.packed, rows, bias=layer.bias is not None) if layer.values.is_cuda else None
    if found is None:
        return {}
    return {
        "way": way(found),
        "graph_us": round(found.microseconds, 2),
        "graph_dense_us": round(found.dense_microseconds, 2),
    }


def _row(name: str, sides: Sides, options: argparse.Namespace) -> dict[str, Any]:
    device = torch.device(options.device)
    called = {"ours": sides.ours, "torch": sides.theirs}
    samples = interleave(called, device, rounds=options.rounds, warmup=1, budget_s=_BUDGET_S)
    a_call = {side: [sample / _CALLS for sample in taken] for side, taken in samples.items()}
    row = timed(name, a_call["ours"], **beside("torch's own call", a_call["torch"], a_call["ours"]))
    return row | {"aim_times": _LEAST, "met": row["times"] >= _LEAST} | sides.noted()
