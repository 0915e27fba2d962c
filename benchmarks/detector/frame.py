"""A whole frame as one CUDA graph, from points to boxes on the GPU: sparse against the tuned dense baseline.

    python -m benchmarks.detector.frame --device cuda

Both sides share pillars, head, refinement and suppression, run in half precision and are timed by events
around replays of their graphs, interleaved, frame by frame. The dense baseline's convolutions are cuDNN's,
fused with bias, skip and ReLU (channels last, batch norms folded). In the camera's view the same sparse
network also runs layer by layer, in single precision, on spconv and on spconv-triton where they are
installed. Cases: scans of the camera's view (also with one refinement step), whole scans, eight frames in one
call, pillars of 0.075 m, four times the range in both directions, and highways of 300 m. The camera's view,
whole scans and highways also run with an unbounded, hashed grid. The camera's view also runs without the
embedding head.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.detector.frame_sides import LIBRARIES, LibraryRunner
from benchmarks.lib.graphs import call_microseconds
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import number, result, save, show, table
from benchmarks.lib.scenes import (
    around,
    default_data,
    load_frames,
    load_full_scans,
    load_highway,
    tile,
    widen,
)
from perception.budget import Level, thinned
from perception.checkpoints.weights import load_weights
from perception.comparison.measure import in_turn, reserved_bytes
from perception.comparison.sides import DENSE, SPARSE
from perception.config import DetectorConfig
from perception.model.network import Network
from perception.registry import graph_steps
from perception.run.bounded import BoundedGrid
from perception.run.graph import FrameGraph, FrameRunner
from perception.stages.pillars import fixed_pillars

_BATCH = 8
_ONCE, _ALL_AROUND, _HIGHWAY = "view, refined once", "whole scan, all around", "highway"
_HASHED, _BARE = "sparse without range", "sparse without vectors"
#: Half sides of the squares of these cases, whole numbers of cells.
_AROUND_M, _HIGHWAY_M = 81.92, 307.2
#: Aims: milliseconds at batch 1, times the dense baseline and spconv's layers, times the frame of a 16th of
#: the area, megabytes, microseconds from the points of a whole scan to sorted points and rows, and of
#: vectors.
_AIMS = {
    "p50_ms": 0.25,
    "p99_ms": 0.35,
    "ratio_kitti": 2.0,
    "ratio_fine": 6.0,
    "ratio_spconv": 10.0,
    "range_x4_cost": 2.0,
    "memory_mb": 150.0,
    "pillars_us": 30.0,
    "vectors_us": 15.0,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    device = torch.device(options.device, 0) if options.device == "cuda" else torch.device("cpu")
    configure(device, options.threads)
    notes: list[str] = []
    rows: list[dict[str, Any]] = []
    stages: dict[str, float] = {}
    start = time.perf_counter()
    sparse = load_weights("pointpillars-kitti")
    front = load_frames(options.data, options.frames, seed=options.seed)
    clouds = [torch.from_numpy(np.array(points)).to(device) for points in front.points]
    with torch.inference_mode():
        for name, config, inputs in _cases(options, sparse.config, clouds, front.points, device):
            if options.budget_s and time.perf_counter() - start > options.budget_s:
                notes.append(f"left out after {options.budget_s:.0f} s: {name}")
                continue
            print(f"[{time.perf_counter() - start:.0f} s] {name}", file=sys.stderr, flush=True)
            row, runner = _measured(name, config, inputs, device, options, notes)
            rows.append(row)
            if name == "view" and runner is not None:
                stages = runner.profile(inputs[0], repeats=options.rounds)
            if name == "whole scan" and runner is not None:
                row["pillars_us"] = round(_pillars_us(runner, inputs[0], options.rounds), 1)
            del runner
            if device.type == "cuda":
                torch.cuda.empty_cache()
    notes.append(f"{front.kind}; weights pointpillars-kitti and pointpillars-kitti-dense.")
    settings = {
        name: getattr(options, name) for name in ("device", "frames", "rounds", "threads", "seed", "quick")
    }
    values = result("frame", device, settings, cases=rows, stages_ms=stages, bars=_bars(rows), notes=notes)
    save(values, options)
    show(values, _tables(values), notes, as_json=options.json)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "frame", quick="few frames, no dense baseline on large grids")
    parser.add_argument("--data", type=Path, default=default_data(), help="KITTI folder; simulated if absent")
    parser.add_argument(
        "--highway", type=Path, help="folder of .bin scans of a highway; simulated without it"
    )
    parser.add_argument("--frames", type=int, help="scans to measure on (20; 4 with --quick)")
    parser.add_argument("--rounds", type=int, help="replays of each side on each scan (50; 5 with --quick)")
    parser.add_argument("--budget-s", type=float, help="start no further case after this long")
    options = parse(parser, arguments)
    options.frames = options.frames or (4 if options.quick else 20)
    options.rounds = options.rounds or (5 if options.quick else 50)
    return options


def _cases(
    options: argparse.Namespace,
    config: DetectorConfig,
    clouds: list[Tensor],
    points: Sequence[Any],
    device: torch.device,
) -> list[tuple[str, DetectorConfig, list[list[Tensor]]]]:
    single = [[cloud] for cloud in clouds]
    few = single[:: max(1, len(single) // 5)]
    cases = [("view", config, single)]
    if options.quick:
        return cases
    cases.append((_ONCE, replace(config, refine=replace(config.refine, iterations=1)), single))
    full = load_full_scans(options.data, 4)
    if full is not None:
        cases.append(
            ("whole scan", config, [[torch.from_numpy(np.array(p)).to(device)] for p in full.points])
        )
    batches = [clouds[first : first + _BATCH] for first in range(0, len(clouds) - _BATCH + 1, _BATCH)]
    cases.append((f"{_BATCH} frames a call", config, batches))
    # A whole number of the backbone's strides in both directions.
    fine = replace(
        config.pillars, pillar_size_m=0.075, range_m=(0.0, -39.6, -3.0, 69.0, 39.6, 1.0), max_pillars=120_000
    )
    cases.append(("pillars of 0.075 m", replace(config, pillars=fine), few))
    cases.append(("range x4", widen(config, 4), few))
    tiled = torch.from_numpy(tile(points[len(points) // 2], config, 4)).to(device)
    cases.append(("range x4, as full everywhere", widen(config, 4, max_pillars=500_000), [[tiled]]))
    if full is not None:
        turns = [[torch.from_numpy(np.array(p)).to(device)] for p in full.points]
        cases.append((_ALL_AROUND, around(config, _AROUND_M), turns))
    if (highway := load_highway(2, seed=options.seed, folder=options.highway)) is not None:
        roads = [[torch.from_numpy(np.array(p)).to(device)] for p in highway.points]
        cases.append((_HIGHWAY, around(config, _HIGHWAY_M), roads))
    return cases


def _network(name: str, config: DetectorConfig, device: torch.device, kind: str) -> Network:
    steps = load_weights(name).config.refine.iterations
    built = replace(
        config,
        backbone=replace(config.backbone, kind=kind),
        refine=replace(config.refine, iterations=steps),
    )
    network = load_weights(name, config=built).to(device).eval().fold()
    return thinned(network, Level("fewer steps", refinements=config.refine.iterations))


def _measured(
    name: str,
    config: DetectorConfig,
    inputs: list[list[Tensor]],
    device: torch.device,
    options: argparse.Namespace,
    notes: list[str],
) -> tuple[dict[str, Any], FrameRunner | None]:
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    row: dict[str, Any] = {
        "case": name,
        "grid": list(config.pillars.grid_shape),
        "frames": len(inputs),
        "batch": len(inputs[0]),
        "points": int(np.median([sum(map(len, clouds)) for clouds in inputs])),
        "sides": {},
    }
    sparse = _network("pointpillars-kitti", config, device, "sparse")
    own = FrameRunner(sparse, graph_steps(sparse.config), dtype=dtype)
    makers: dict[str, Callable[[], FrameRunner | LibraryRunner]] = {SPARSE: lambda: own}
    if device.type == "cuda":
        dense = _network("pointpillars-kitti-dense", config, device, "dense")
        makers[DENSE] = partial(FrameRunner, dense, graph_steps(dense.config), dtype=dtype)
        if name in ("view", _ALL_AROUND, _HIGHWAY):
            hashed = _network("pointpillars-kitti", config.with_range(None), device, "sparse")
            makers[_HASHED] = partial(FrameRunner, hashed, graph_steps(hashed.config), dtype=dtype)
        if name == "view":
            bare = copy.deepcopy(sparse)
            bare.embedding = None
            makers[_BARE] = partial(FrameRunner, bare, graph_steps(bare.config), dtype=dtype)
            makers |= {side: partial(LibraryRunner, sparse, package) for package, side in LIBRARIES.items()}
    graphs: dict[str, FrameGraph | LibraryRunner] = {}
    runners: dict[str, FrameRunner | LibraryRunner] = {}
    largest = max(inputs, key=lambda clouds: sum(map(len, clouds)))
    for side, make in makers.items():
        before = reserved_bytes(device)
        try:
            runner = make()
            # The room is what the batch with the most cells needs.
            found = [len(result.boxes) for clouds in (largest, *inputs) for result in runner(clouds)]
        except Exception as error:  # a side that does not fit is a row of the table
            notes.append(f"{name}, {side}: {type(error).__name__}: {str(error).splitlines()[0][:160]}")
            continue
        runners[side], graphs[side] = runner, runner.graph_for(largest)
        row["sides"][side] = {
            "memory_mb": round((reserved_bytes(device) - before) / 1e6, 1),
            "boxes_median": float(np.median(found)),
        }
        graph = graphs[side]
        if isinstance(graph, FrameGraph):
            row["sides"][side]["capacities"] = list(graph.room.capacities)
    samples: dict[str, list[float]] = {side: [] for side in graphs}
    pillars = []
    for clouds in inputs:
        for side in graphs:
            graphs[side] = runners[side].graph_for(clouds)
            graphs[side].load(clouds)
        replays = {side: graph.replay for side, graph in graphs.items()}
        # A library takes a hundred times as long.
        libraries = LIBRARIES.values()
        for side, times in in_turn(replays, device, rounds=options.rounds, slow=libraries).items():
            samples[side] += times
        counted = own if SPARSE in runners else runners.get(_HASHED)
        pillars.append(counted(clouds)[0].pillars if isinstance(counted, FrameRunner) else 0)
    row["pillars"] = int(np.median(pillars))
    for side, times in samples.items():
        row["sides"][side] |= {
            "p50_ms": round(float(np.percentile(times, 50)), 4),
            "p99_ms": round(float(np.percentile(times, 99)), 4),
            "quartiles_ms": [round(float(np.percentile(times, share)), 4) for share in (25, 75)],
            "frames_per_s": round(1e3 * len(inputs[0]) / float(np.percentile(times, 50))),
        }
    if DENSE in samples and SPARSE in samples:
        ratio = np.array(samples[DENSE]) / np.array(samples[SPARSE])
        row["dense_over_sparse"] = round(float(np.median(ratio)), 2)
    return row, own if SPARSE in runners else None


def _pillars_us(runner: FrameRunner, clouds: Sequence[Tensor], rounds: int) -> float:
    """Microseconds from points to rows of pillars and points in their order."""
    graph = runner.graph_for(clouds)
    graph.load(clouds)
    grid = graph.steps.grid
    assert isinstance(grid, BoundedGrid)
    run = partial(
        fixed_pillars,
        *graph.scans,
        runner.config.pillars,
        graph.room.capacities[0],
        workspace=grid.pillar_workspace,
    )
    options: dict[str, Any] = {"rounds": rounds, "budget_s": 5.0, "seed": 0}
    return statistics.median(call_microseconds({"pillars": run}, runner.device, **options)["pillars"])


def _bars(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    by_case = {row["case"]: row for row in rows}

    def figure_of(case: str, figure: str, side: str = SPARSE) -> float | None:
        found = by_case.get(case, {}).get("sides", {}).get(side, {}).get(figure)
        return None if found is None else float(found)

    def ratio(case: str) -> float | None:
        return by_case.get(case, {}).get("dense_over_sparse")

    near, far = figure_of("view", "p50_ms"), figure_of("range x4", "p50_ms")
    spconv = figure_of("view", "p50_ms", LIBRARIES["spconv"])
    bare = figure_of("view", "p50_ms", _BARE)
    measured = {
        "p50_ms": near,
        "p99_ms": figure_of("view", "p99_ms"),
        "ratio_kitti": ratio("view"),
        "ratio_fine": ratio("pillars of 0.075 m"),
        "ratio_spconv": None if near is None or spconv is None else round(spconv / near, 1),
        "range_x4_cost": None if near is None or far is None else round(far / near, 2),
        "memory_mb": figure_of("view", "memory_mb"),
        "pillars_us": by_case.get("whole scan", {}).get("pillars_us"),
        "vectors_us": None if near is None or bare is None else round(1e3 * (near - bare), 1),
    }

    def met(name: str, value: float | None) -> bool:
        if value is None:
            return False
        return value >= _AIMS[name] if name.startswith("ratio") else value <= _AIMS[name]

    return {
        name: {"value": value, "aim": _AIMS[name], "met": met(name, value)}
        for name, value in measured.items()
    }


def _tables(values: dict[str, Any]) -> list[Any]:
    lines = []
    for row in values["cases"]:
        for side, facts in row["sides"].items():
            lines.append(
                [
                    row["case"],
                    f"{row['grid'][0]} x {row['grid'][1]}",
                    f"{row['pillars']:,}",
                    side,
                    number(facts["p50_ms"], 3),
                    number(facts["p99_ms"], 3),
                    f"{facts['frames_per_s']:,}",
                    number(facts["memory_mb"], 0),
                    str(row.get("dense_over_sparse", "")) if side == DENSE else "",
                ]
            )
    columns = ["case", "grid", "pillars", "side", "p50 ms", "p99 ms", "frames/s", "MB", "times sparse"]
    stages = [[name, number(1e3 * value, 1)] for name, value in values["stages_ms"].items()]
    aims = [
        [name, str(bar["value"]), str(bar["aim"]), "yes" if bar["met"] else "no"]
        for name, bar in values["bars"].items()
    ]
    return [
        table("Whole frame", columns, lines),
        table("Stages, each a graph of its own", ["stage", "µs"], stages),
        table("Aims", ["figure", "value", "aim", "met"], aims),
    ]


if __name__ == "__main__":
    sys.exit(main())
