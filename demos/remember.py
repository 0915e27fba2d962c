"""A robot drives through a town for some days, detects, remembers, and answers questions about it.

The town is simulated, so the answers can be judged: parked cars leave and move, people stand and walk,
cyclists are there on one day, and once a day the robot stops for a while. What it remembers is compared with
a store that keeps every observation and with one that keeps the latest.

    python demos/remember.py                                    # three days, a few minutes
    python demos/remember.py --short                            # two days in a smaller town
    python demos/remember.py --scans SCANS --poses POSES.jsonl  # recorded scans; nothing to judge by
    python demos/remember.py --rgbd FOLDER                      # an indoor RGB-D sequence: places only
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from drive.asking import questions_about
from drive.comparing import Judged, added, judged, size_of
from drive.frames import DAY_NS, START_NS, DriveConfig, recorded, simulated
from drive.indoor import remember_rgbd
from drive.picture import Drawn, draw
from drive.remembering import CONFIG, Robot, Tally
from drive.town import Town, TownConfig
from drive.truth import Truth
from rich.console import Console
from rich.progress import track
from rich.table import Table

from memory import MemoryStore, Query
from memory.errors import DataError as PoseError
from memory.questions import Questions
from perception.errors import DataError

DIM = 256
SHORT_TOWN = TownConfig(half_m=(30.0, 24.0), standing=4, walking=2, filled=0.6, leaves=0.2, moves=0.2)


def drive_through_town(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[Judged]]:
    """Drive, remember, compare, draw; returns the figures."""
    drive = DriveConfig(options.days, options.loops, options.step, options.stop, options.seed)
    town = Town(SHORT_TOWN if options.short else TownConfig(), options.days, options.seed)
    truth, looks, since, last = Truth(), [], 0, None
    started = time.perf_counter()
    with MemoryStore.open(
        folder / "ours", dim=DIM, config=replace(CONFIG, capacity=options.capacity)
    ) as store:
        robot = Robot(store)
        frames = track(simulated(town, drive), "driving", total=drive.frames(town), disable=not options.show)
        for number, frame in enumerate(frames):
            if last is not None and frame.day != last.day:
                robot.end_day(last.time_ns)
                since = store.generation
            ask_later = frame.day == options.days - 1 and number % 4 == 1 and not frame.standing
            vector = robot.see(frame, ask_later=ask_later)
            truth.add(frame)
            if ask_later:
                looks.append((frame.map_from_lidar[:2, 3], vector))
            last = frame
        if last is None:
            raise SystemExit("remember: the drive has no scan")
        robot.end_day(last.time_ns)
        took = time.perf_counter() - started
        questions = questions_about(truth, looks, each=options.questions, seed=options.seed)
        results = [judged("ours", store, since, truth, questions)]
        memories = [hit.memory for hit in store.query(Query(k=100_000))]
        last_day_ns = START_NS + (options.days - 1) * DAY_NS
        rest = {"everything": robot.observations, "latest": robot.observations[-len(store) :]}
        for name, observations in rest.items():
            other, other_since = added(folder / name, observations, last_day_ns, DIM)
            with other:
                results.append(judged(name, other, other_since, truth, questions))
        title = (
            f"{options.days} days, {robot.tally.offered} observations, {len(memories)} memories,"
            f" {results[0].right} of {len(questions)} answers right"
        )
        picture = draw(
            options.out / "remember.png",
            Drawn(
                title,
                robot.path,
                robot.tally.timeline,
                memories,
                robot.lost,
                truth.there(),
                results[0].answers,
            ),
        )
    # Once they are closed: while they are open there is a journal that is not yet in the database.
    results = [replace(result, bytes=size_of(folder / result.name)) for result in results]
    report = {
        "days": options.days,
        "seed": options.seed,
        "scans": len(robot.tally.timeline),
        "drive_s": took,
        "tally": tally_json(robot.tally),
        "stores": {result.name: result.to_json() for result in results},
        "picture": str(picture),
    }
    return report, results


def drive_recorded(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Remember recorded scans; nobody knows what is true, so there is no score."""
    with MemoryStore.open(
        folder / "ours", dim=DIM, config=replace(CONFIG, capacity=options.capacity)
    ) as store:
        robot, last = Robot(store, map_id="recorded"), None
        frames = recorded(options.scans, options.poses)
        for frame in track(frames, "remembering", disable=not options.show):
            if last is not None and frame.day != last.day:
                robot.end_day(last.time_ns)
            robot.see(frame)
            last = frame
        if last is None:
            raise SystemExit(f"remember: {options.scans} holds no scan")
        robot.end_day(last.time_ns)
        memories = [hit.memory for hit in store.query(Query(k=100_000))]
        ask = Questions(store)
        labels = sorted({memory.label for memory in memories if memory.kind == "object"})
        said = [str(ask.last_seen(label)) for label in labels] + [str(ask.summarise())]
        title = f"{robot.tally.offered} observations, {len(memories)} memories"
        drawn = Drawn(title, robot.path, robot.tally.timeline, memories, robot.lost)
        picture = draw(options.out / "remember.png", drawn)
        held = len(store)
    return {
        "scans": len(robot.tally.timeline),
        "memories": held,
        "bytes": size_of(folder / "ours"),
        "tally": tally_json(robot.tally),
        "answers": said,
        "picture": str(picture),
    }


def tally_json(tally: Tally) -> dict[str, Any]:
    """Plain numbers; times as medians and 95 %."""
    numbers = asdict(tally)
    numbers["held"] = tally.held
    # asdict takes counters for lists of pairs.
    numbers["dropped"], numbers["forgotten"] = dict(tally.dropped), dict(tally.forgotten)
    numbers["dropped_total"] = tally.dropped.total()
    del numbers["timeline"]
    for name in ("detection_ms", "observe_ms"):
        values = numbers[name] or [0.0]
        numbers[name] = {"median": float(np.median(values)), "p95": float(np.percentile(values, 95))}
    return numbers


def show_tally(console: Console, tally: dict[str, Any]) -> None:
    """What became of the observations, in words."""
    console.print(
        f"{tally['offered']} observations: {tally['kept']} kept when they came, {tally['dropped_total']} not;"
        f" {tally['displaced']} displaced later, {tally['merged']} merged into others,"
        f" {sum(tally['forgotten'].values())} forgotten over capacity: {tally['held']} memories,"
        f" of which {tally['gone']} were found gone"
    )
    for reason, count in sorted(tally["dropped"].items(), key=lambda entry: -entry[1])[:4]:
        console.print(f"  not kept {count} times: {reason}")
    console.print(
        f"medians: detection {tally['detection_ms']['median']:.0f} ms a scan,"
        f" observing {tally['observe_ms']['median']:.1f} ms"
    )


def show_results(console: Console, results: list[Judged]) -> None:
    """The stores side by side, and the questions that ours got wrong."""
    table = Table(box=None, pad_edge=False)
    heads = (
        "",
        "memories",
        "kB",
        "precision",
        "recall",
        "near one",
        "error m, median",
        "95 %",
        "right",
    )
    for place, heading in enumerate(heads):
        table.add_column(heading, justify="right" if place else "left")
    for result in results:
        cars = result.cars
        errors = [
            "-" if value is None else f"{value:.2f}" for value in (cars.error_median_m, cars.error_95_m)
        ]
        table.add_row(
            result.name, f"{result.memories}", f"{result.bytes / 1e3:.0f}", f"{cars.precision:.2f}",
            f"{cars.recall:.2f}", f"{cars.near_truth:.2f}", *errors,
            f"{result.right} of {len(result.answers)}",
        )  # fmt: skip
    console.print("\nWhich cars are where now, and answers that are right")
    console.print(table)
    kinds = list(dict.fromkeys(answer.kind for answer in results[0].answers))
    by_kind = Table(box=None, pad_edge=False)
    for place, heading in enumerate(("answers right", *kinds)):
        by_kind.add_column(heading, justify="right" if place else "left")
    for result in results:
        counts = result.to_json()["questions"]["by_kind"]
        by_kind.add_row(result.name, *(f"{counts[kind]['right']}/{counts[kind]['asked']}" for kind in kinds))
    console.print(by_kind)
    for answer in results[0].answers:
        if not answer.right:
            console.print(f"  wrong: {answer.text} {answer.said}; true: {answer.expected}")


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--days", type=int, help="default: 3, with --short 2")
    add("--loops", type=int, help="of a day, at most 4; default: 2, with --short 1")
    add("--step", type=float, help="metres between scans; default: 4, with --short 5")
    add("--stop", type=int, help="scans at the stop of each day; default: 30, with --short 8")
    add("--questions", type=int, help="most of a kind; default: 12, with --short 6")
    add("--capacity", type=int, help="most memories; what exceeds it is forgotten at the end of a day")
    add("--seed", type=int, default=0, help="default: 0")
    add("--short", action="store_true", help="a smaller town and fewer scans")
    add("--scans", type=Path, help="folder of recorded scans instead of the simulated drive")
    add("--poses", type=Path, help="their poses")
    add("--rgbd", type=Path, help="folder of an indoor RGB-D sequence instead")
    add("--out", type=Path, default=Path("out/remember"), help="folder for the picture")
    add("--store", type=Path, help="keep the stores in this new folder, for the recall command")
    add("--json", action="store_true", help="print the figures as JSON and nothing else")
    options = parser.parse_args()
    check(parser, options)
    options.show = not options.json and sys.stderr.isatty()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            run(options, options.store or Path(scratch))
        except (DataError, PoseError, ValueError, OSError) as error:
            raise SystemExit(f"remember: {error}") from error


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Fill in what was not given, and refuse what makes no sense."""
    defaults = {"days": (3, 2), "loops": (2, 1), "step": (4.0, 5.0), "stop": (30, 8), "questions": (12, 6)}
    for name, (usual, short) in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, short if options.short else usual)
    if options.days < 1 or not 1 <= options.loops <= 4 or options.stop < 0 or options.questions < 1:
        parser.error("--days and --questions must be at least 1, --loops from 1 to 4, --stop not negative")
    if not 0.5 <= options.step <= 20.0:
        parser.error("--step must be from 0.5 to 20 metres")
    if (options.scans is None) != (options.poses is None):
        parser.error("--scans and --poses belong together")
    if options.scans is not None and options.rgbd is not None:
        parser.error("give --scans or --rgbd, not both")
    if options.store is not None and any(options.store.glob("*/memory.db")):
        parser.error(f"{options.store} holds a store already")


def run(options: argparse.Namespace, folder: Path) -> None:
    """Do what was asked for, and print it."""
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    results: list[Judged] = []
    if options.rgbd is not None:
        picture = options.out / "remember.png"
        report, tally = remember_rgbd(options.rgbd, folder / "indoor", picture, show=options.show)
        report["tally"] = tally_json(tally)
    elif options.scans is not None:
        report = drive_recorded(options, folder)
    else:
        report, results = drive_through_town(options, folder)
    if options.json:
        print(json.dumps(report, indent=2))
        return
    show_tally(console, report["tally"])
    if options.rgbd is not None:
        console.print(
            "indoors there is nothing that the detector knows:"
            f" {report['memories']} views are kept as places."
            f"\nOf {report['asked']} views that were left out, found again: "
            + ", ".join(f"{share:.0%} by {name}" for name, share in report["found_again"].items())
            + f"; a memory of their place is there for {report['could_be_found']:.0%}, a guess finds"
            f" {report['guessed']:.0%}; {report['bytes'] / 1e3:.0f} kB"
        )
    for line in report.get("answers", ()):
        console.print(line)
    if results:
        show_results(console, results)
    console.print(f"picture: {report['picture']}")
    if options.store is not None:
        console.print(f"look yourself: recall query {folder / 'ours'} --text Car")


if __name__ == "__main__":
    main()
