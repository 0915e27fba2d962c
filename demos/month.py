"""Drive a robot through a town for a month, store every observation, and ask what it has seen before.

The shipped detector processes every simulated scan. Each confident object becomes a memory with the
detector's embedding: more than 50,000. The store searches them by hashes. Comparing all vectors instead gives
the recall and the reference time. Cars come, leave and move from day to day, so the simulator knows whether a
parked car of the last day was seen before.

    python demos/month.py              # thirty days; detection takes a quarter of an hour on two idle cores
    python demos/month.py --index itq  # the same observations with another index
    python demos/month.py --quick      # two days in a small town

Observations are kept in the folder of ``--out``, so an interrupted run resumes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from drive.frames import DriveConfig
from drive.observations import RANGE_M, found_again, recognised_again, settings, store_all
from drive.perception_run import perceive_days, read_drive
from drive.report.month_picture import draw_month
from drive.town import TownConfig
from rich.console import Console
from rich.progress import Progress

from memory import MemoryStore
from memory.errors import RecallError
from memory.index.kinds import STORE_KINDS
from memory.query import Filter
from sparse_core.common.commands import failure, reported_file_errors

TOWN = TownConfig(
    half_m=(60.0, 40.0), filled=0.95, leaves=0.1, moves=0.1, arrives=0.5, standing=12, walking=6, once=3
)
SMALL = TownConfig(half_m=(24.0, 20.0), filled=0.9, standing=3, walking=2)


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--days", type=int, help="number of days; the last provides the questions (30, with --quick 2)")
    add("--loops", type=int, help="loops per day, at most 4 (2, with --quick 1)")
    add("--step", type=float, help="metres between scans (4.5, with --quick 8)")
    add("--index", choices=sorted(STORE_KINDS), default="lsh", help="index of the store (lsh)")
    add("--questions", type=int, default=300, help="questions per kind (300)")
    add("--seed", type=int, default=0, help="seed of the town (0)")
    add("--processes", type=int, default=os.cpu_count() or 1, help="detection processes (one per core)")
    add("--quick", action="store_true", help="use a small town and few scans")
    add("--out", type=Path, default=Path("out/month"), help="folder for observations, store and picture")
    add("--json", action="store_true", help="print the figures as JSON and nothing else")
    options = parser.parse_args()
    for name, (usual, quick) in {"days": (30, 2), "loops": (2, 1), "step": (4.5, 8.0)}.items():
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else usual)
    if options.days < 2 or not 1 <= options.loops <= 4 or min(options.questions, options.processes) < 1:
        parser.error("--days must be at least 2, --loops from 1 to 4, --questions and --processes at least 1")
    if not 0.5 <= options.step <= 20.0:
        parser.error("--step must be from 0.5 to 20 metres")
    try:
        report = run(options)
    except (RecallError, OSError, ValueError) as error:
        raise SystemExit(f"month: {failure(error)}") from error
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        show(report)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Detect, store, ask and draw; return the figures."""
    town = SMALL if options.quick else TOWN
    # Number of scans of the daily stop.
    stop = 2 if options.quick else 10
    drive = DriveConfig(options.days, options.loops, options.step, stop, options.seed)
    percepts, folder = options.out / "sights", options.out / "store"
    percepts.mkdir(parents=True, exist_ok=True)
    quiet = options.json or not sys.stderr.isatty()
    started = time.perf_counter()
    with Progress(disable=quiet, console=Console(stderr=True)) as progress:
        task = progress.add_task("detecting, day by day", total=options.days)
        for done, _ in perceive_days(percepts, town, [drive], processes=options.processes, range_m=RANGE_M):
            progress.update(task, completed=done)
    seeing_s = time.perf_counter() - started
    # A quick run has few observations; a low limit makes it use the index anyway.
    config = settings(options.index, 64 if options.quick else 20_000)
    sights = store_all(folder, read_drive(percepts, town, drive, RANGE_M), options.days, config)
    asked = [memory for memory, _ in sights.asked if memory.embeddings]
    step = max(1, len(asked) // options.questions)
    found = found_again(folder, asked[::step][: options.questions])
    recognised = recognised_again(folder, sights, most=options.questions, seed=options.seed)
    with MemoryStore.open(folder, readonly=True) as store:
        memories = store.find(Filter())
    title = (
        f"{options.days} days, {sights.scans:,} scans, {len(memories):,} memories on a CPU;"
        f" recall@10 of {found['index']['index']}: {found['recall']:.1%}"
    )
    picture = draw_month(options.out / "month.png", title, sights.path, memories, found)
    return {
        "days": options.days,
        "scans": sights.scans,
        "seeing_s": round(seeing_s, 1),
        "memories": recognised["memories"],
        "added_a_second": round(sights.memories / sights.added_s),
        "bytes": recognised["bytes"],
        "found_again": found,
        "seen_before": recognised,
        "store": str(folder),
        "picture": str(picture),
    }


def show(report: dict[str, Any]) -> None:
    """Print the figures."""
    found, seen = report["found_again"], report["seen_before"]
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    say = console.print
    say(
        f"{report['days']} days, {report['scans']:,} scans (detected in {report['seeing_s']:.0f} s):"
        f" {report['memories']:,} memories, {report['bytes'] / 1e6:.0f} MB,"
        f" {report['added_a_second']:,} memories added per second"
    )
    say(f"{found['asked']} similarity searches in {found['vectors']:,} object embeddings:")
    say(f"  {found['plan']['answered'] or found['plan']['reason']}")
    say(
        f"  recall@10 {found['recall']:.1%}, {found['ms']['index']['median']:.2f} ms per search;"
        f" comparing all: {found['ms']['compared']['median']:.2f} ms,"
        f" {found['compared_over_index']:.2f} times as long"
    )
    say(f"  reopening with the first answer: {found['opened_s']:.2f} s")
    if seen["right"] is not None:
        say(
            f'"have I seen this before?" for {seen["asked"]} parked cars on the last day,'
            f" {seen['seen_before']} of them seen before: {seen['right']:.0%} right"
            f" ({_percent(seen['right_of_seen'])} of those seen before,"
            f" {_percent(seen['right_of_new'])} of the new ones),"
            f" {seen['ms']['median']:.1f} ms per answer"
        )
        say(f"  {seen['said']}")
    say(f"picture: {report['picture']}")
    say(f"next: recall query {report['store']} --label Cyclist -k 3")


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{share:.0%}"


if __name__ == "__main__":
    with reported_file_errors("month"):
        main()
