"""A long drive through a town, remembered by three stores and judged by the simulator's truth.

    python -m benchmarks.memory.drive                    # three towns, seven days of three loops each
    python -m benchmarks.memory.drive --again            # perceive nothing: everything was perceived before

The shipped detector processes every scan, which takes most of the time (a third of a second per scan and
thread). Its detections of each day are cached in ``--percepts``, so an interrupted run resumes. Three stores
get the same observations and questions: ours (observe, then consolidate daily), one that keeps everything,
and one that keeps the most recent, as many as ours. The rules for false alarms and for pedestrians were tuned
on seed 0, so the default seeds leave it out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import Progress

from benchmarks.lib.demos import drive_module
from benchmarks.lib.environment import ROOT
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.publish.screen import tables

_STORES = ("ours", "everything", "latest")
_KINDS = ("last seen", "nearby", "changed", "still there", "how often", "place")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    configure(torch.device("cpu"), 1)
    frames, town, run, study = map(drive_module, ("frames", "town", "perception_run", "study"))
    sizes = town.TownConfig(half_m=(22.0, 20.0), filled=0.9) if options.quick else town.TownConfig()
    drives = [
        frames.DriveConfig(options.days, options.loops, options.step, options.stop, seed)
        for seed in options.seeds
    ]
    options.percepts.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with Progress(disable=options.json) as progress:
        _perceive(progress, run.perceive_days, options, sizes, drives)
        perceived = time.perf_counter()
        rows = [
            study.studied(options.percepts, sizes, drive, each=options.questions)
            for drive in progress.track(drives, description="remembering")
        ]
    values = result(
        "drive",
        torch.device("cpu"),
        {
            "seeds": options.seeds,
            "days": options.days,
            "loops": options.loops,
            "step_m": options.step,
            "stop_scans": options.stop,
            "questions_of_a_kind": options.questions,
            "processes": options.processes,
            "quick": options.quick,
        },
        perceiving_s=round(perceived - started, 1),
        remembering_s=round(time.perf_counter() - perceived, 1),
        summary={name: summary(rows, name) for name in _STORES},
        seeds=rows,
        notes=[
            "positions of all labels, from each thing said to be there to the nearest true one within 2 m",
            "'latest' holds as many observations as our store holds memories",
            "bytes are those of all files, our log of operations included",
            "perceiving_s is small where percepts were there already",
        ],
    )
    save(values, options)
    show(
        values, tables(values, "drive", "drive-kinds", "drive-became"), values["notes"], as_json=options.json
    )
    return 0


def summary(rows: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """Mean and sample standard deviation of a store's figures over the seeds.

    Args:
        rows: of every seed.
        name: of the store.
    """
    stores = [row["stores"][name] for row in rows]
    figures: dict[str, list[float]] = {
        "memories": [store["memories"] for store in stores],
        "megabytes": [store["bytes"] / 1e6 for store in stores],
        "right_share": [store["questions"]["right"] / store["questions"]["asked"] for store in stores],
        "query_median_ms": [store["questions"]["median_ms"] for store in stores],
        "query_p95_ms": [store["questions"]["p95_ms"] for store in stores],
    }
    for part in ("all", "cars"):
        for figure in ("precision", "recall", "error_median_m", "error_95_m"):
            found = [store["what_is_where_now"][part][figure] for store in stores]
            figures[f"{part}_{figure}"] = [value for value in found if value is not None]
    kinds = {
        kind: {
            "asked": sum(store["questions"]["by_kind"].get(kind, {}).get("asked", 0) for store in stores),
            "right": sum(store["questions"]["by_kind"].get(kind, {}).get("right", 0) for store in stores),
        }
        for kind in _KINDS
    }
    return {"figures": {key: _mean(found) for key, found in figures.items()}, "kinds": kinds}


def _mean(found: Sequence[float]) -> dict[str, float | None]:
    if not found:
        return {"mean": None, "std": None}
    return {
        "mean": float(np.mean(found)),
        "std": float(np.std(found, ddof=1)) if len(found) > 1 else 0.0,
    }


def _perceive(
    progress: Progress,
    perceive_days: Callable[..., Any],
    options: argparse.Namespace,
    sizes: Any,
    drives: Sequence[Any],
) -> None:
    """Perceive what is missing, with a bar; with ``--again`` that is an error."""
    task = progress.add_task("perceiving days", total=None)
    for done, total in perceive_days(options.percepts, sizes, drives, processes=options.processes):
        if options.again and done < total:
            raise SystemExit(f"drive: {total - done} days are not perceived yet; leave out --again")
        progress.update(task, completed=done, total=total)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "drive", quick="two days in a tiny town, one seed: only to see it run")
    add = parser.add_argument
    add("--seeds", type=int, nargs="+", help="towns and drives (1 2 3)")
    add("--days", type=int, help="of each drive (7)")
    add("--loops", type=int, help="of each day, at most 4 (3)")
    add("--step", type=float, help="metres between scans (5)")
    add("--stop", type=int, help="scans at the stop of each day (30)")
    add("--questions", type=int, help="most of a kind (40)")
    add("--processes", type=int, default=2, help="that perceive at the same time")
    add("--percepts", type=Path, default=ROOT / "out" / "drive-percepts", help="what was perceived")
    add("--again", action="store_true", help="perceive nothing; remember and judge what was perceived")
    options = parse(parser, arguments)
    usual: dict[str, tuple[Any, Any]] = {
        "seeds": ([1, 2, 3], [1]),
        "days": (7, 2),
        "loops": (3, 1),
        "step": (5.0, 20.0),
        "stop": (30, 2),
        "questions": (40, 4),
    }
    for name, (value, quick) in usual.items():
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else value)
    if options.days < 2 or not 1 <= options.loops <= 4 or options.stop < 0 or options.processes < 1:
        parser.error(
            "--days must be at least 2, --loops from 1 to 4, --stop not negative, --processes at least 1"
        )
    if len(set(options.seeds)) < len(options.seeds) or options.device != "cpu":
        parser.error("--seeds must differ, and the drive runs on the CPU")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
