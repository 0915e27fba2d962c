"""Whole frame, points in host memory to detections: the sparse detector against its dense baseline.

    python -m benchmarks.detector.detector --device cpu
    python -m benchmarks.detector.detector --device cuda --quick

Both sides run interleaved on the same frames in one process. benchmarks/README.md says how to read the table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.detector import chart
from benchmarks.detector.variants import Runner, Variant, WeightSource, prepare, variants_for
from benchmarks.lib import process_memory
from benchmarks.lib.environment import ROOT
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.lib.scenes import (
    Frames,
    around,
    default_data,
    load_frames,
    load_full_scans,
    load_highway,
    surround,
    tile,
    widen,
)
from benchmarks.lib.timing import Summary, interleave, paired_ratio
from benchmarks.publish.screen import tables
from benchmarks.publish.text import Column, Table, Values
from perception.boxes import rotated_iou_bev
from perception.config import DetectorConfig
from perception.model.pillars import make_pillars
from perception.types import Detections, FloatArray

#: A single dense frame beyond this is not worth waiting for.
_LONGEST_FRAME_S = 25.0
#: Share of the free memory that a dense frame may be expected to need.
_MEMORY_SHARE = 0.7
#: Dense maps alive at once at the finest resolution: input, output and skip of a block, and the canvas.
_LIVE_MAPS = 4
_SIZES = {"full scan": "full scan, all around", "highway": "highway, 300 m around"}
#: Half side of the square around a highway scan, a whole number of cells.
_HIGHWAY_M = 307.2
#: Boxes of the reference with at least this score are looked for in the other rows.
_CONFIDENT = 0.3
_SAME_BOX_IOU = 0.7


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    if options.draw_from:
        chart.draw(json.loads(options.draw_from.read_text()), options.png)
        return 0
    device = torch.device(options.device)
    configure(device, options.threads)
    source = WeightSource.open(options.weights, options.dense_weights, options.config, seed=options.seed)
    frames = load_frames(options.data, options.frames, seed=options.seed)
    if options.memory_of:
        wanted = next(v for v in variants_for(device, compiled=True) if v.name == options.memory_of)
        sys.stdout.write(json.dumps(_memory_here(wanted, source, frames, device)) + "\n")
        return 0
    values = _measure(options, device, source, frames)
    save(values, options)
    if options.png:
        chart.draw(values, options.png)
    show(values, tables(values, **_TABLES), values["notes"], as_json=options.json)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "detector", quick="fewer scans and sizes: about two minutes")
    parser.add_argument("--data", type=Path, default=default_data(), help="KITTI folder; simulated if absent")
    parser.add_argument("--frames", type=int, help="scans to measure on (20; 8 with --quick)")
    parser.add_argument(
        "--rounds", type=int, help="measured calls of each side on each scan (3; 2 with --quick)"
    )
    parser.add_argument("--weights", default="pointpillars-kitti", help="shipped name, file, or 'random'")
    parser.add_argument("--dense-weights", metavar="FILE", help="dense baseline (default: random)")
    parser.add_argument("--config", type=Path, help="training configuration to build with --weights random")
    parser.add_argument(
        "--no-compile", action="store_true", help="leave out the rows that need torch.compile"
    )
    parser.add_argument("--no-scaling", action="store_true", help="leave out cost against scene")
    parser.add_argument("--no-memory", action="store_true", help="leave out peak memory")
    parser.add_argument(
        "--compile-limit-s", type=float, default=120.0, help="give up compiling after this long"
    )
    parser.add_argument("--png", type=Path, help="draw a chart as well")
    parser.add_argument("--draw-from", type=Path, help="only draw this result file (needs --png)")
    parser.add_argument("--memory-of", metavar="ROW", help=argparse.SUPPRESS)
    options = parse(parser, arguments)
    if options.draw_from and not options.png:
        parser.error("--draw-from needs --png")
    options.frames = options.frames or (8 if options.quick else 20)
    options.rounds = options.rounds or (2 if options.quick else 3)
    return options


def _measure(
    options: argparse.Namespace, device: torch.device, source: WeightSource, frames: Frames
) -> dict[str, Any]:
    notes = _standing_notes(source, device, frames)
    variants = variants_for(device, compiled=not options.no_compile)
    runners: dict[str, Runner] = {}
    rows: dict[str, dict[str, Any]] = {}
    for variant in variants:
        _progress(f"preparing {variant.name}")
        before = torch.cuda.memory_allocated() if device.type == "cuda" else 0
        ready = prepare(
            partial(Runner, variant, source, device), frames.points[0], limit_s=options.compile_limit_s
        )
        if isinstance(ready, str):
            notes.append(f"{variant.name}: left out, {ready}")
            continue
        runners[variant.name] = ready
        rows[variant.name] = {"variant": vars(variant)}
        if not options.no_memory:
            rows[variant.name]["memory"] = (
                _memory_on_gpu(ready, frames, before)
                if device.type == "cuda"
                else _memory_of(variant, options)
            )
    _progress("timing")
    samples = _time_frames(runners, frames, device, rounds=options.rounds, seed=options.seed)
    stages = _time_stages(runners, frames)
    found = {name: [runner(points) for points in frames.points] for name, runner in runners.items()}
    reference = found[Variant("sparse").name]
    for name, row in rows.items():
        row["time"] = Summary.of(samples[name]).to_dict()
        row["samples_ms"] = [round(value, 3) for value in samples[name]]
        row["stages_ms"] = stages[name]
        row["detections_median"] = float(np.median([len(entry) for entry in found[name]]))
        if runners[name].variant.kind == "sparse":
            row["agreement"] = _agreement(reference, found[name])
    scaling = [] if options.no_scaling else _scaling(options, device, source, frames, runners, notes)
    return result(
        "detector",
        device,
        _settings(options, source, frames),
        frames={"kind": frames.kind, "names": list(frames.names), "points": [len(p) for p in frames.points]},
        variants=rows,
        ratios=_ratios(runners, samples),
        scaling=scaling,
        notes=notes,
    )


def _progress(message: str) -> None:
    sys.stderr.write(f"[{time.strftime('%H:%M:%S')}] {message}\n")
    sys.stderr.flush()


def _settings(options: argparse.Namespace, source: WeightSource, frames: Frames) -> dict[str, Any]:
    # Names only: a result file must not contain paths of the machine that made it.
    return {
        "device": options.device,
        "frames": len(frames),
        "rounds": options.rounds,
        "threads": options.threads,
        "seed": options.seed,
        "quick": options.quick,
        "weights": "random" if source.sparse is None else Path(source.sparse).name,
        "dense_weights": "random" if source.dense is None else Path(source.dense).name,
        "range_m": list(source.config.pillars.closed_grid.range_m),
        "pillar_size_m": source.config.pillars.pillar_size_m,
        "grid": list(source.config.pillars.grid_shape),
    }


def _standing_notes(source: WeightSource, device: torch.device, frames: Frames) -> list[str]:
    notes = []
    if source.dense is None:
        notes.append(
            "The backbone of the dense baseline has random weights. Its layers take the same time, but it may"
            " propose fewer boxes, so its NMS and refinement can look cheaper than they are."
        )
    if source.sparse is None:
        notes.append("Random weights: the boxes mean nothing.")
    if not frames.kind.startswith("KITTI"):
        notes.append("No KITTI scans were found: simulated ones stand in.")
    if device.type == "cuda":
        notes.append("float32 rows use TF32 in convolutions and products on both sides.")
    notes.append("In compiled rows the stage 'backbone' includes the neck.")
    return notes


def _time_frames(
    runners: dict[str, Runner], frames: Frames, device: torch.device, *, rounds: int, seed: int
) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {name: [] for name in runners}
    for index, points in enumerate(frames.points):
        sides = {name: partial(runner, points) for name, runner in runners.items()}
        warmup = 2 if index == 0 else 0
        for name, times in interleave(sides, device, rounds=rounds, warmup=warmup, seed=seed + index).items():
            samples[name].extend(times)
    return samples


def _time_stages(runners: dict[str, Runner], frames: Frames) -> dict[str, dict[str, float]]:
    """Return the median of every stage over the frames, in a separate pass, because reading times costs time
    on a GPU."""
    times: dict[str, dict[str, list[float]]] = {name: {} for name in runners}
    for points in frames.points:
        for name, runner in runners.items():
            for stage, elapsed_ms in runner.stages(points).items():
                times[name].setdefault(stage, []).append(elapsed_ms)
    return {
        name: {stage: round(float(np.median(values)), 3) for stage, values in stages.items()}
        for name, stages in times.items()
    }


def _ratios(runners: dict[str, Runner], samples: dict[str, list[float]]) -> dict[str, dict[str, Any]]:
    """Dense over sparse of the same precision, pair by pair; and the fastest rows of both."""
    ratios: dict[str, dict[str, Any]] = {}
    for name, runner in runners.items():
        sparse = runner.variant.baseline_name
        if runner.variant.kind == "dense" and sparse in samples:
            ratios[f"{name} / {sparse}"] = paired_ratio(samples[name], samples[sparse])
    fastest = {
        kind: min(
            (name for name, runner in runners.items() if runner.variant.kind == kind),
            key=lambda name: float(np.median(samples[name])),
            default=None,
        )
        for kind in ("sparse", "dense")
    }
    best_dense, best_sparse = fastest["dense"], fastest["sparse"]
    if best_dense is not None and best_sparse is not None:
        ratios["fastest dense / fastest sparse"] = {
            **paired_ratio(samples[best_dense], samples[best_sparse]),
            "dense": best_dense,
            "sparse": best_sparse,
        }
    return ratios


def _agreement(reference: list[Detections], other: list[Detections]) -> float | None:
    """Share of the reference's confident boxes that the other has too: same class, BEV IoU of 0.7 or more."""
    wanted = matched = 0
    for expected, found in zip(reference, other, strict=True):
        confident = np.flatnonzero(expected.scores >= _CONFIDENT)
        wanted += len(confident)
        if len(confident) == 0 or len(found) == 0:
            continue
        overlap = rotated_iou_bev(expected.boxes[confident], found.boxes)
        labels = np.array(expected.labels)[confident]
        same_class = labels[:, None] == np.array(found.labels)[None, :]
        matched += int(((np.asarray(overlap) >= _SAME_BOX_IOU) & same_class).any(axis=1).sum())
    return round(matched / wanted, 4) if wanted else None


def _memory_on_gpu(runner: Runner, frames: Frames, before: int) -> dict[str, Any]:
    """Return the allocator's peak above its level before this variant was built, weights included."""
    torch.cuda.reset_peak_memory_stats()
    for points in frames.points:
        runner(points)
    pool = runner.graph_pool_bytes
    peak = torch.cuda.max_memory_allocated() - before + pool
    return {"peak_mb": _megabytes(peak), "delta_mb": _megabytes(peak), "graph_pool_mb": _megabytes(pool)}


def _memory_of(variant: Variant, options: argparse.Namespace) -> dict[str, Any] | None:
    """Peak of a fresh process that runs this variant only."""
    command = [sys.executable, "-m", "benchmarks.detector.detector", "--memory-of", variant.name]
    for name in ("device", "data", "weights", "dense_weights", "config", "threads", "seed"):
        value = getattr(options, name)
        if value is not None:
            command += [f"--{name.replace('_', '-')}", str(value)]
    command += ["--frames", str(min(4, options.frames))]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=True,
            timeout=options.compile_limit_s + 60,
        )
        parsed = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, OSError, ValueError, IndexError):
        return None
    assert isinstance(parsed, dict)
    return parsed


def _memory_here(
    variant: Variant, source: WeightSource, frames: Frames, device: torch.device
) -> dict[str, Any]:
    runner = Runner(variant, source, device)
    loaded = process_memory.resident_bytes() or process_memory.peak_bytes()
    if variant.execution != "eager":
        # The compiler needs extra memory once; only running the result counts.
        runner(frames.points[0])
    exact = process_memory.reset_peak()
    for points in frames.points:
        runner(points)
    peak = process_memory.peak_bytes()
    return {
        "peak_mb": _megabytes(peak),
        "loaded_mb": _megabytes(loaded),
        "delta_mb": _megabytes(peak - loaded),
        "peak_since_loaded": exact,
    }


def _megabytes(count: int) -> float:
    return round(count / 2**20, 1)


def _scaling(
    options: argparse.Namespace,
    device: torch.device,
    source: WeightSource,
    frames: Frames,
    runners: dict[str, Runner],
    notes: list[str],
) -> list[dict[str, Any]]:
    """Cost against scene: the range grows with and without points to fill it, and scans all around."""
    config = source.config
    points = frames.points[len(frames) // 2]
    cases: list[tuple[str, int, DetectorConfig, tuple[FloatArray, ...]]] = [("range", 1, config, (points,))]
    for factor in (2,) if options.quick and device.type == "cpu" else (2, 4):
        wide = widen(config, factor)
        cases.append(("range", factor, wide, (points,)))
        room = config.pillars.max_pillars * factor * factor
        cases.append(
            ("tiled", factor, widen(config, factor, max_pillars=room), (tile(points, config, factor),))
        )
    full = load_full_scans(options.data, 2 if options.quick else 4)
    if full is not None:
        cases.append(("full scan", 1, surround(config), full.points))
    if (highway := load_highway(1 if options.quick else 2, seed=options.seed)) is not None:
        cases.append(("highway", 1, around(config, _HIGHWAY_M), highway.points))
    sides = [runner.variant for runner in runners.values() if runner.variant.execution == "eager"]
    sides = [variant for variant in sides if variant.impl == "auto"]
    if device.type == "cpu":
        sides.append(Variant("sparse", ranged=False))
    rows = []
    for kind, factor, wide, clouds in cases:
        _progress(f"cost against scene: {kind} x{factor}")
        row = _scene_cost(kind, factor, wide, clouds, sides, device, source, options)
        rows.append(row)
        notes.extend(f"{kind} x{factor}, {name}: {reason}" for name, reason in row["skipped"].items())
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return rows


def _scene_cost(
    kind: str,
    factor: int,
    config: DetectorConfig,
    clouds: tuple[FloatArray, ...],
    sides: list[Variant],
    device: torch.device,
    source: WeightSource,
    options: argparse.Namespace,
) -> dict[str, Any]:
    ready: dict[str, Runner] = {}
    skipped: dict[str, str] = {}
    for variant in sides:
        reason = _too_large(variant, config, device)
        if reason is None:
            start = time.perf_counter()
            runner = prepare(
                partial(Runner, variant, source, device, config), clouds[0], limit_s=_LONGEST_FRAME_S
            )
            if isinstance(runner, str):
                skipped[variant.name] = f"not measured, {runner} ({time.perf_counter() - start:.0f} s)"
            else:
                ready[variant.name] = runner
        else:
            skipped[variant.name] = reason
    samples: dict[str, list[float]] = {name: [] for name in ready}
    for cloud in clouds:
        bound = {name: partial(runner, cloud) for name, runner in ready.items()}
        # Three rounds at least; slow sizes stop there.
        rounds = 3 if options.quick else 7
        # Preparing ran each side on the first cloud already.
        warmup = 0 if cloud is clouds[0] else 1
        timed = interleave(bound, device, rounds=rounds, warmup=warmup, budget_s=8.0, seed=options.seed)
        for name, times in timed.items():
            samples[name].extend(times)
    pillars = [len(make_pillars([torch.from_numpy(cloud)], config.pillars).table) for cloud in clouds]
    rows, columns = config.pillars.grid_shape
    return {
        "kind": kind,
        "factor": factor,
        "grid": [rows, columns],
        "area_m2": round(rows * columns * config.pillars.pillar_size_m**2, 1),
        "points": [len(cloud) for cloud in clouds],
        "pillars": pillars,
        "occupied": round(float(np.mean(pillars)) / (rows * columns), 5),
        "time": {name: Summary.of(values).to_dict() for name, values in samples.items()},
        "ratios": {
            name: paired_ratio(samples[name], samples[ready[name].variant.baseline_name])
            for name in samples
            if ready[name].variant.kind == "dense" and ready[name].variant.baseline_name in samples
        },
        "skipped": skipped,
    }


def _too_large(variant: Variant, config: DetectorConfig, device: torch.device) -> str | None:
    """Why a dense frame of this size should not be tried; None if it should."""
    if variant.kind == "sparse":
        return None
    rows, columns = config.pillars.grid_shape
    width = max(config.pillars.channels, config.backbone.channels[0])
    # The canvas is float32 even under autocast, when the first layer also needs its half-precision copy.
    needed = rows * columns * width * 4 * _LIVE_MAPS
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else process_memory.available_bytes()
    if free is None or needed <= _MEMORY_SHARE * free:
        return None
    return f"not measured, its maps need about {needed / 2**30:.1f} GB and {free / 2**30:.1f} GB are free"


def _stage_columns(values: Values) -> list[Column]:
    names = dict.fromkeys(stage for row in values["variants"].values() for stage in row["stages_ms"])
    return [Column("", (0,)), *(Column(name, (1, "stages_ms", name), ".1f", "–") for name in names)]


def _scaling_columns(values: Values) -> list[Column]:
    names = {name for row in values["scaling"] for name in (*row["time"], *row["skipped"])}
    ordered = sorted(names, key=lambda name: ("bf16" in name or "fp16" in name, name))
    return [
        Column("", lambda row: _SIZES.get(row["kind"], f"{row['kind']} x{row['factor']}")),
        Column("grid", "grid", "{0[0]}x{0[1]}"),
        Column("pillars", "pillars", lambda counts: f"{np.mean(counts):.0f}"),
        Column("occupied", "occupied", ".2%"),
        *(Column(name, ("time", name, "median_ms"), ".0f", "–") for name in ordered),
        Column("dense / sparse", lambda row: ", ".join(f"{r['median']:.1f}" for r in row["ratios"].values())),
    ]


def _variants(values: Values) -> list[Any]:
    return list(values["variants"].items())


#: Printed, not published.
_TABLES = {
    "Whole_frame": Table(
        "detector-cpu",
        _variants,
        (
            Column("", (0,)),
            Column("median ms", (1, "time", "median_ms"), ".1f"),
            Column("IQR", (1, "time", "iqr_ms"), ".1f"),
            Column("p99", (1, "time", "p99_ms"), ".1f"),
            Column("peak MB", (1, "memory", "peak_mb"), ".0f", "–"),
            Column("of its run", (1, "memory", "delta_mb"), ".0f", "–"),
            Column("boxes", (1, "detections_median"), ".0f", "–"),
            Column("same boxes", (1, "agreement"), ".1%", "–"),
        ),
    ),
    "Dense_over_sparse": Table(
        "detector-cpu",
        lambda values: list(values["ratios"].items()),
        (
            Column("", (0,)),
            Column("median", (1, "median"), ".2f"),
            Column("quartiles", (1,), "{0[lower_quartile]:.2f}–{0[upper_quartile]:.2f}"),
        ),
    ),
    "Median_ms_per_stage": Table("detector-cpu", _variants, _stage_columns),
    "Cost_by_scene": Table("detector-cpu", "scaling", _scaling_columns),
}


if __name__ == "__main__":
    sys.exit(main())
