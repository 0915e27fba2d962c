"""An archive detected by one process and by several: scans a second, and what sharing them out costs.

    python -m benchmarks.detector.archives
    python -m benchmarks.detector.archives --device cuda --workers 1 2 4 8 --scans 4000 --engines local ray

``perceive detect --no-pictures`` runs on files as users call it, in fresh processes, one side after the other
in every round. The total time includes starting Python, all workers and their detectors (on a GPU the capture
of their graphs). Scans per second are counted between the first and the last detected scan. Ratios are of
sides of one round. Results so far are in ``--out`` at any moment.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

from benchmarks.lib.environment import ROOT
from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.results import result, save, show, write
from benchmarks.lib.scenes import load_frames
from benchmarks.publish.screen import tables
from perception.engines.local import usable_cores

#: Scans that differ; the archive repeats them.
_DIFFERENT = 8
#: Fields of a record that differ from run to run; on a GPU each worker looks at its own first scans.
_VARYING = {"cpu": ("detected_ns", "elapsed_ms"), "cuda": ("detected_ns", "elapsed_ms", "warnings")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 1 where records of a side differ from those of one process."""
    options = _options(arguments)
    device = torch.device(options.device)
    configure(device, options.threads)
    sides: dict[str, tuple[str, ...]] = {"one process": ()}
    for engine in options.engines:
        for workers in options.workers:
            sides[f"{engine} {workers}"] = ("--engine", engine, "--workers", str(workers))
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    bar = Progress(console=Console(stderr=True), disable=options.json, transient=True)
    with tempfile.TemporaryDirectory() as name, bar as progress:
        scans = Path(name) / "scans"
        told = _write_scans(scans, options)
        task = progress.add_task("detecting", total=options.rounds * len(sides))
        for _ in range(options.rounds):
            for side, chosen in sides.items():
                runs[side].append(_run(scans, Path(name) / "out", chosen, options))
                values = _values(runs, told, options)
                write(values, options.out)
                progress.advance(task)
    save(values, options)
    show(values, tables(values, "archives-cpu"), values["notes"], as_json=options.json)
    return 0 if values["equal"] else 1


def _values(
    runs: Mapping[str, Sequence[dict[str, Any]]], told: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Results so far; ``told`` describes the scans."""
    plain = runs["one process"]
    cases = [_case(side, each, plain) for side, each in runs.items() if each]
    equal = all(run["records"] == plain[0]["records"] for each in runs.values() for run in each)
    notes = [f"{options.scans} scans, {told}; {usable_cores()} cores; records equal: {equal}"]
    settings = asked(options, "data") | {
        "cores": usable_cores(),
        "frames": told,
        "load": list(os.getloadavg()),
    }
    return result("archives", torch.device(options.device), settings, cases=cases, equal=equal, notes=notes)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "archives", quick="fewer scans and rounds")
    parser.add_argument("--data", type=Path, default=ROOT / "data", help="KITTI, else simulated scans")
    parser.add_argument("--weights", default="pointpillars-kitti")
    parser.add_argument("--scans", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--engines", nargs="+", choices=("local", "ray"), default=["local"])
    options = parse(parser, arguments)
    if options.quick:
        options.scans, options.rounds, options.workers = min(options.scans, 12), 1, options.workers[:2]
    return options


def _write_scans(folder: Path, options: argparse.Namespace) -> str:
    """The archive; returns what its scans are."""
    folder.mkdir()
    frames = load_frames(options.data, min(_DIFFERENT, options.scans), seed=options.seed)
    for place in range(options.scans):
        points = frames.points[place % len(frames.points)]
        np.asarray(points, "<f4").tofile(folder / f"{place:06d}.bin")
    return frames.kind


def _run(scans: Path, out: Path, chosen: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "perception.cli", "detect", str(scans), "--out", str(out)]
    command += ["--no-pictures", "--overwrite", "--weights", str(options.weights)]
    command += ["--device", options.device, *chosen]
    # Threads are what the commands take by themselves: all cores, shared by the workers.
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    started = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, env=environment, stdout=subprocess.DEVNULL)
    whole_s = time.perf_counter() - started
    records = [json.loads(line) for line in (out / "detections.jsonl").read_text().splitlines()]
    moments = [record["detected_ns"] for record in records]
    span_s = (max(moments) - min(moments)) / 1e9
    for record in records:
        for name in _VARYING[options.device]:
            del record[name]
    return {
        "whole_s": whole_s,
        "scans_per_s": (len(records) - 1) / span_s if span_s else None,
        "records": records,
    }


def _case(side: str, runs: Sequence[dict[str, Any]], plain: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians, and the ratios to one process round by round."""
    whole, rates = ([run[name] for run in runs] for name in ("whole_s", "scans_per_s"))
    times = [
        run["scans_per_s"] / other["scans_per_s"] for run, other in zip(runs, plain[: len(runs)], strict=True)
    ]
    return {
        "side": side,
        "median_s": statistics.median(whole),
        "scans_per_s": statistics.median(rates),
        "times": statistics.median(times),
        "times_least": min(times),
        "times_most": max(times),
        "overhead": statistics.median(1 / one for one in times) - 1,
    }


if __name__ == "__main__":
    raise SystemExit(main())
