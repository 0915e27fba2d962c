"""The memory's index on a GPU against exact search by torch: one query up to batches of 1,024.

    python -m benchmarks.memory.memory_cuda --device cuda --budget-s 300

Unit vectors of 256 numbers around 1,000 centres (noise 0.05 a dimension), in half precision on the device.
Sides: the cells of random pivots, the scan of all codes, and exact search (a product in half precision and
top-k, block by block); all in CUDA graphs. Recall is measured against exact scores in single precision. Our
sides are not trained; their pivots and directions are drawn from a seed. ``--profile`` prints the times of
the kernels of one call, ``--sweep`` measures other efforts on the same index.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.lib.graphs import call_microseconds, microseconds
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import number, result, save, show, table
from memory.index import recall
from memory.index.cuda import CudaIndex, rerank_top
from memory.index.cuda.index import Method
from memory.index.effort import Effort

_DIM, _CENTRES, _NOISE, _K = 256, 1000, 0.05, 10
CELLS, SCAN, EXACT = "ours, cells", "ours, scan", "torch, exact"
_BATCHES = (1, 8, 64, 1024)
_SCAN_LIMIT = 64
_ROWS_AT_ONCE = 1 << 18
#: Probes and reranked rows of ``--sweep``.
_SWEEP = ((8, 512), (12, 512), (16, 384), (16, 512), (24, 256), (24, 384), (24, 512), (24, 1024), (32, 512))
#: Candidates for the exact answer, since half precision rounds scores.
_SPARE = 64
#: Targets: milliseconds of one query, queries per second in a batch of 1,024, recall.
_AIM_MS, _AIM_RATE, _AIM_RECALL = 0.15, 800_000, 0.95


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    device = torch.device(options.device, 0) if options.device == "cuda" else torch.device("cpu")
    configure(device, options.threads)
    torch.set_float32_matmul_precision("highest")
    notes: list[str] = []
    searches: list[dict[str, Any]] = []
    sweep: list[dict[str, Any]] = []
    built: dict[str, Any] = {}
    start = time.perf_counter()
    try:
        generator = torch.Generator(device).manual_seed(options.seed)
        # A small run keeps clusters of a hundred rows, or nothing would be near.
        clusters = min(_CENTRES, max(1, options.rows // 100))
        centres = _units(torch.randn(clusters, _DIM, generator=generator, device=device))
        vectors = _drawn(centres, options.rows, generator)
        queries = _drawn(centres, options.queries, generator).float()
        queries /= queries.norm(dim=1, keepdim=True)
        truth = _truth(vectors, queries)
        index, built = _built(vectors, device, options)
        for batch in options.batches:
            if options.budget_s and time.perf_counter() - start > options.budget_s:
                notes.append(f"left out after {options.budget_s:.0f} s: batch {batch}")
                continue
            searches += _searches(index, vectors, queries, truth, batch, device, options, notes)
        built["overflow_queries"], built["overflow_rows"] = index.overflow
        built["cells"] = index.cells
        if options.sweep:
            sweep = _sweep(index, vectors, queries, truth, device, options)
        if options.profile:
            _profile(index, queries, device)
    except Exception as error:  # what is measured so far is kept
        notes.append(f"failed: {_reason(error)}")
    names = ("device", "rows", "queries", "batches", "rounds", "threads", "seed", "quick", "budget_s")
    settings = {name: getattr(options, name) for name in (*names, *_EFFORT)} | {"dim": _DIM, "k": _K}
    values = result(
        "memory_cuda",
        device,
        settings,
        built=built,
        searches=searches,
        bars=_bars(searches),
        sweep=sweep,
        notes=notes,
    )
    save(values, options)
    show(values, _tables(values), notes, as_json=options.json)
    return 1 if any(note.startswith("failed: ") for note in notes) else 0


_EFFORT = ("pivots", "probes", "capacity", "rerank", "scan_rerank")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "memory_cuda", quick="few rows and a small effort")
    parser.add_argument("--rows", type=int, help="vectors (10 million)")
    parser.add_argument("--queries", type=int, help="queries for the recall (1,024)")
    parser.add_argument("--batches", type=int, nargs="+", help="queries a call (1 8 64 1024)")
    parser.add_argument("--rounds", type=int, help="measured calls of each side (30; 3 with --quick)")
    parser.add_argument("--cell-s", type=float, default=10.0, help="no further round of a batch after this")
    parser.add_argument("--budget-s", type=float, help="start no further batch after this long")
    parser.add_argument("--profile", action="store_true", help="print kernel times for batches 1 and 1,024")
    parser.add_argument("--sweep", action="store_true", help="also measure other probes and reranks")
    for name in _EFFORT:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help="see CudaIndex")
    options = parse(parser, arguments)
    quick = options.quick
    options.rows = options.rows or (5000 if quick else 10_000_000)
    options.queries = options.queries or (16 if quick else 1024)
    options.batches = options.batches or ([1, 16] if quick else list(_BATCHES))
    options.rounds = options.rounds or (3 if quick else 30)
    if quick:
        small = {"probes": 16, "capacity": 4096, "rerank": 300, "scan_rerank": 300}
        for name, value in small.items():
            setattr(options, name, getattr(options, name) or value)
    if max(options.batches) > options.queries or options.rows < _K:
        parser.error("--queries must be at least the largest batch, and --rows at least 10")
    return options


def _units(vectors: Tensor) -> Tensor:
    scaled: Tensor = vectors / vectors.norm(dim=1, keepdim=True)
    return scaled


def _drawn(centres: Tensor, rows: int, generator: torch.Generator) -> Tensor:
    """(rows, dim) float16 unit vectors around the centres; the data of ``memory.index.clustered``."""
    device = centres.device
    out = torch.empty((rows, _DIM), dtype=torch.float16, device=device)
    for first in range(0, rows, _ROWS_AT_ONCE):
        some = out[first : first + _ROWS_AT_ONCE]
        own = torch.randint(0, len(centres), (len(some),), generator=generator, device=device)
        jitter = torch.randn(some.shape, generator=generator, device=device)
        some.copy_(_units(centres[own] + _NOISE * jitter))
    return out


def _exact(vectors: Tensor, queries: Tensor, k: int) -> Tensor:
    """(queries, k) rows of the highest products in half precision, block by block."""
    half = queries.half()
    scores, rows = [], []
    for first in range(0, len(vectors), _ROWS_AT_ONCE):
        some = vectors[first : first + _ROWS_AT_ONCE]
        best = (half @ some.T).topk(min(k, len(some)), dim=1)
        scores.append(best.values)
        rows.append(best.indices + first)
    best = torch.cat(scores, 1).topk(k, dim=1)
    return torch.cat(rows, 1).gather(1, best.indices)


def _truth(vectors: Tensor, queries: Tensor) -> np.ndarray[Any, Any]:
    """The nearest by exact scores in single precision."""
    found = []
    for first in range(0, len(queries), 256):
        some = queries[first : first + 256]
        near = _exact(vectors, some, min(_K + _SPARE, len(vectors))).to(torch.int32)
        found.append(rerank_top(vectors, some, near, _K, impl="reference").rows.cpu().numpy())
    return np.concatenate(found)


def _built(
    vectors: Tensor, device: torch.device, options: argparse.Namespace
) -> tuple[CudaIndex, dict[str, Any]]:
    effort = {name: getattr(options, name) for name in _EFFORT if getattr(options, name)}
    index = CudaIndex(_DIM, device=device, seed=options.seed, **effort)
    for name in _EFFORT:
        setattr(options, name, getattr(index, name))
    start = time.perf_counter()
    index.add_tensor(vectors, np.arange(len(vectors)))
    _wait(device)
    added = time.perf_counter() - start
    start = time.perf_counter()
    index.merge()
    _wait(device)
    merged = time.perf_counter() - start
    facts = {
        "add_s": round(added, 3),
        "merge_s": round(merged, 3),
        "bytes_a_row": round(index.nbytes / len(vectors), 1),
    }
    return index, facts


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _searches(
    index: CudaIndex,
    vectors: Tensor,
    queries: Tensor,
    truth: np.ndarray[Any, Any],
    batch: int,
    device: torch.device,
    options: argparse.Namespace,
    notes: list[str],
) -> list[dict[str, Any]]:
    """All sides at one size of a batch; a side that fails is a note."""
    asked = queries[:batch].contiguous()
    sides: dict[str, Effort | None] = {CELLS: index.effort_of("cells"), EXACT: None}
    if batch <= _SCAN_LIMIT:
        sides = {SCAN: index.effort_of("scan"), **sides}
    rows = []
    for name, effort in sides.items():
        run: Callable[[], object] = partial(_exact, vectors, asked, _K)
        if effort is not None:
            run = partial(index.eager, asked, _K, effort)
        try:
            quality = _recall(index, vectors, queries, truth, batch, effort)
            samples = call_microseconds(
                {name: run}, device, rounds=options.rounds, budget_s=options.cell_s, seed=options.seed
            )[name]
        except Exception as error:  # one side must not cost the others their results
            notes.append(f"failed: {name}, batch {batch}: {_reason(error)}")
            continue
        spent = microseconds(samples)
        rows.append(
            {
                "side": name,
                "batch": batch,
                "recall": round(quality, 4),
                "microseconds": spent,
                "queries_per_s": round(batch * 1e6 / spent["median"]),
            }
        )
        print(f"batch {batch}, {name}: {spent['median']:.1f} µs, recall {quality:.4f}", file=sys.stderr)
    return rows


def _sweep(
    index: CudaIndex,
    vectors: Tensor,
    queries: Tensor,
    truth: np.ndarray[Any, Any],
    device: torch.device,
    options: argparse.Namespace,
) -> list[dict[str, Any]]:
    """Recall and time of the cells at other efforts, on the index as it is."""
    rows = []
    for probes, rerank in _SWEEP:
        effort = Effort(probes, rerank)
        for batch in (min(options.batches), max(options.batches)):
            run = partial(index.eager, queries[:batch].contiguous(), _K, effort)
            samples = call_microseconds(
                {CELLS: run}, device, rounds=options.rounds, budget_s=options.cell_s, seed=options.seed
            )
            spent = microseconds(samples[CELLS])
            quality = _recall(index, vectors, queries, truth, batch, effort)
            rows.append(
                {
                    "probes": probes,
                    "rerank": rerank,
                    "batch": batch,
                    "recall": round(quality, 4),
                    "microseconds": spent,
                }
            )
            print(
                f"probes {probes}, rerank {rerank}, batch {batch}: {spent['median']:.1f} µs,"
                f" recall {quality:.4f}",
                file=sys.stderr,
            )
    return rows


def _profile(index: CudaIndex, queries: Tensor, device: torch.device) -> None:
    """Print the times of the kernels of one call of each of our sides."""
    if device.type != "cuda":
        print("--profile: there are no kernels on a CPU", file=sys.stderr)
        return
    methods: tuple[Method, ...] = ("cells", "scan")
    for method in methods:
        for batch in (1, min(1024, len(queries)) if method == "cells" else 8):
            asked = queries[:batch].contiguous()
            index.eager(asked, _K, index.effort_of(method))
            _wait(device)
            with profile(activities=[ProfilerActivity.CUDA]) as measured:
                index.eager(asked, _K, index.effort_of(method))
                _wait(device)
            print(f"{method}, batch {batch}", file=sys.stderr)
            for event in sorted(measured.events(), key=lambda event: event.time_range.start):
                print(f"  {event.time_range.elapsed_us():9.1f} µs  {event.name[:90]}", file=sys.stderr)


def _recall(
    index: CudaIndex,
    vectors: Tensor,
    queries: Tensor,
    truth: np.ndarray[Any, Any],
    batch: int,
    effort: Effort | None,
) -> float:
    """Over as many whole batches of the queries as there are, at most 64; ``None``: exact search by torch."""
    count = min(len(queries) // batch, 64) * batch
    parts = []
    for first in range(0, count, batch):
        some = queries[first : first + batch]
        found = _exact(vectors, some, _K) if effort is None else index.eager(some, _K, effort)[1]
        parts.append(found.cpu().numpy())
    return recall(np.concatenate(parts), truth[:count])


def _bars(searches: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The aims, by the fastest of our sides whose recall suffices."""

    def best(batch: int) -> dict[str, Any] | None:
        enough = [
            row
            for row in searches
            if row["batch"] == batch and row["side"] != EXACT and row["recall"] >= _AIM_RECALL
        ]
        return min(enough, key=lambda row: float(row["microseconds"]["median"]), default=None)

    one, many = best(1), best(1024)
    alone = None if one is None else round(one["microseconds"]["median"] / 1e3, 4)
    rate = None if many is None else many["queries_per_s"]
    return {
        "one_query_ms": {"value": alone, "aim": _AIM_MS, "met": alone is not None and alone <= _AIM_MS},
        "batch_1024_per_s": {"value": rate, "aim": _AIM_RATE, "met": rate is not None and rate >= _AIM_RATE},
    }


def _tables(values: dict[str, Any]) -> list[Any]:
    rows = [
        [
            row["side"],
            str(row["batch"]),
            number(row["microseconds"]["median"]),
            f"{number(row['microseconds']['lower_quartile'])}–{number(row['microseconds']['upper_quartile'])}",
            f"{row['queries_per_s']:,}",
            number(row["recall"], 4),
        ]
        for row in values["searches"]
    ]
    columns = ["side", "batch", "µs", "quartiles", "queries/s", "recall@10"]
    aims = [
        [name, str(bar["value"]), str(bar["aim"]), "yes" if bar["met"] else "no"]
        for name, bar in values["bars"].items()
    ]
    return [
        table(f"{values['settings']['rows']:,} vectors", columns, rows),
        *_sweep_table(values["sweep"]),
        table("Build", ["figure", "value"], ([name, str(value)] for name, value in values["built"].items())),
        table("Aims", ["figure", "value", "aim", "met"], aims),
    ]


def _sweep_table(sweep: Sequence[dict[str, Any]]) -> list[Any]:
    rows = [
        [
            *(str(row[name]) for name in ("probes", "rerank", "batch")),
            number(row["microseconds"]["median"]),
            number(row["recall"], 4),
        ]
        for row in sweep
    ]
    return [table("Other efforts", ["probes", "rerank", "batch", "µs", "recall@10"], rows)] if rows else []


def _reason(error: Exception) -> str:
    """First line of an error, without folders of this machine."""
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200].replace(str(Path.cwd()), '.')}"


if __name__ == "__main__":
    sys.exit(main())
