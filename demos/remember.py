"""A robot drives through a town for some days, detects, remembers, and answers questions about it.

The town is simulated, so the answers can be judged: parked cars leave and move, people stand and walk,
cyclists are there on one day, and once a day the robot stops for a while. What it remembers is compared with
a store that keeps every observation and with one that keeps the latest.

    python demos/remember.py                                    # three days, a few minutes
    python demos/remember.py --short                            # two days in a smaller town
    python demos/remember.py --scans SCANS --poses POSES.jsonl  # recorded scans; nothing to judge by
    python demos/remember.py --scans DRIVE.mcap                 # a ROS 2 bag or MCAP file with poses in it
    python demos/remember.py --rgbd FOLDER                      # an indoor RGB-D sequence: places only
    python demos/remember.py --data SEQUENCE                    # a labelled sequence: tracks, answers checked
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
import torch
from drive.bag_frames import BagFrames
from drive.comparing import Judged, added, judged, size_of
from drive.frames import DAY_NS, START_NS, DriveConfig, recorded, simulated
from drive.indoor import remember_rgbd
from drive.labelled import remember_sequence
from drive.labelled_questions import questions_of
from drive.labelled_seen import LabelsSeen, Sees, TrackedBoxes, moments, open_sequence, seen_of
from drive.moving import MovingPicture
from drive.picture import Drawn, draw, some_of_each_kind
from drive.printing import show_results, show_tally
from drive.recognising import recognised
from drive.remembering import CONFIG, Robot, Tally
from drive.report import report_drive
from drive.touring import DIM, remember
from drive.town import Town, TownConfig
from drive.viewing import Viewing
from rich.console import Console
from rich.progress import track

from memory import Filter, MemoryStore, Query
from memory.errors import DataError as PoseError
from memory.questions import Questions
from perception import Detector
from perception.errors import DataError
from perception.io.recordings.bags import is_bag
from sparse_core.commands import failure, reported_file_errors

SHORT_TOWN = TownConfig(half_m=(30.0, 24.0), standing=4, walking=2, filled=0.6, leaves=0.2, moves=0.2)


def drive_through_town(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[Judged]]:
    """Drive, remember, compare, draw; returns the figures."""
    drive = DriveConfig(options.days, options.loops, options.step, options.stop, options.seed)
    town = Town(SHORT_TOWN if options.short else TownConfig(), options.days, options.seed)
    frames = track(simulated(town, drive), "driving", total=drive.frames(town), disable=not options.show)
    started = time.perf_counter()
    done = remember(
        folder,
        frames,
        days=options.days,
        each=options.questions,
        seed=options.seed,
        capacity=options.capacity,
        watch=options.view,
    )
    took = time.perf_counter() - started
    robot, results = done.robot, done.results
    with MemoryStore.open(folder / "ours", readonly=True) as store:
        said = recognised(store)
    title = (
        f"{options.days} days, {robot.tally.offered} observations, {len(done.memories)} memories,"
        f" {results[0].right} of {len(results[0].answers)} answers right"
    )
    drawn = Drawn(
        title,
        robot.path,
        robot.tally.timeline,
        done.memories,
        robot.lost,
        done.tour.truth.there(),
        results[0].answers,
    )
    picture = draw(options.out / "remember.png", drawn)
    options.view.finish(done.memories)
    settings = {
        name: getattr(options, name) for name in ("days", "loops", "step", "stop", "seed", "capacity")
    }
    page = report_drive(
        options.report, options.view, folder / "ours", drawn, robot.tally, settings=settings, results=results
    )
    report = {
        "days": options.days,
        "seed": options.seed,
        "scans": len(robot.tally.timeline),
        "drive_s": took,
        "tally": tally_json(robot.tally),
        "stores": {result.name: result.to_json() for result in results},
        "recognised": said,
        "picture": str(picture),
        "report": None if page is None else str(page),
    }
    return report, results


def drive_recorded(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Remember recorded scans; nobody knows what is true, so there is no score."""
    with MemoryStore.open(
        folder / "ours", dim=DIM, config=replace(CONFIG, capacity=options.capacity)
    ) as store:
        robot, last = Robot(store, map_id="recorded"), None
        if is_bag(options.scans):
            frames = BagFrames(
                options.scans,
                topic=options.topic,
                pose_topic=options.pose_topic,
                poses_file=options.poses,
            )
        else:
            frames = recorded(options.scans, options.poses)
        for frame in track(frames, "remembering", disable=not options.show):
            if last is not None and frame.day != last.day:
                robot.end_day(last.time_ns)
            options.view(robot, frame, robot.see(frame))
            last = frame
        if last is None:
            raise SystemExit(f"remember: {options.scans} holds no scan")
        robot.end_day(last.time_ns)
        memories = [hit.memory for hit in store.query(Query(k=100_000))]
        ask = Questions(store)
        labels = sorted({memory.label for memory in memories if memory.kind == "object"})
        said = [str(ask.last_seen(label)) for label in labels] + [str(ask.summarise())]
        said += recognised(store)
        title = f"{robot.tally.offered} observations, {len(memories)} memories"
        drawn = Drawn(title, robot.path, robot.tally.timeline, memories, robot.lost)
        picture = draw(options.out / "remember.png", drawn)
        held = len(store)
    options.view.finish(memories)
    settings = {"scans": options.scans, "capacity": options.capacity}
    page = report_drive(
        options.report, options.view, folder / "ours", drawn, robot.tally, settings=settings, answers=said
    )
    return {
        "scans": len(robot.tally.timeline),
        "memories": held,
        "bytes": size_of(folder / "ours"),
        "tally": tally_json(robot.tally),
        "answers": said,
        "scans_without_pose": frames.skipped if isinstance(frames, BagFrames) else 0,
        "picture": str(picture),
        "report": None if page is None else str(page),
    }


def drive_labelled(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[Judged]]:
    """Track, remember, drive back, and check the answers against the labels."""
    frames = open_sequence(options.data)
    moving = options.moving and MovingPicture(np.array([frame.pose[:2, 3] for frame in frames]))
    sees: Sees = LabelsSeen()
    if not options.perfect:
        detector = Detector.from_pretrained(options.weights)
        sees = TrackedBoxes(lambda frame: detector(frame.cloud))
    with MemoryStore.open(folder / "ours", dim=DIM, config=CONFIG) as store:
        passed = track(
            moments(frames), "driving there and back", total=2 * len(frames), disable=not options.show
        )
        seen = seen_of(iter(passed), sees)
        driven = remember_sequence(store, moving.watched(seen, store) if moving else seen)
        questions = questions_of(driven.truth)
        results = [judged("by tracks", store, driven.since, driven.truth, questions)]
        memories = store.find(Filter())
    if moving:
        told = some_of_each_kind(results[0].answers, 3)
        moving.save(options.moving, memories, [f"{answer.text}  {answer.said}" for answer in told])
    other, since = added(folder / "every", driven.every, START_NS + DAY_NS, DIM)
    with other:
        results.append(judged("every box", other, since, driven.truth, questions))
    title = (
        f"{options.data.name}: {driven.tally.offered} boxes, {len(memories)} memories,"
        f" {results[0].right} of {len(results[0].answers)} answers right"
    )
    drawn = Drawn(
        title,
        driven.path,
        driven.tally.timeline,
        memories,
        places=driven.truth.there(),
        answers=results[0].answers,
        trails=list(driven.trails.values()),
    )
    picture = draw(options.out / "remember.png", drawn)
    settings = {"data": options.data, "boxes": "labels" if options.perfect else options.weights}
    page = report_drive(
        options.report or options.out / "remember.html",
        options.view,
        folder / "ours",
        drawn,
        driven.tally,
        settings=settings,
        results=results,
        truth="that of the labels",
    )
    report = {
        "scans": len(driven.tally.timeline),
        "tally": tally_json(driven.tally),
        "stores": {result.name: result.to_json() for result in results},
        "gone": len(driven.gone),
        "picture": str(picture),
        "report": None if page is None else str(page),
    }
    return report, results


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
    add("--threads", type=int, default=1, help="of the detector; more help only where nothing else runs")
    add("--short", action="store_true", help="a smaller town and fewer scans")
    add("--scans", type=Path, help="folder of recorded scans, ROS 2 bag or MCAP file instead of the town")
    add("--poses", type=Path, help="their poses; not needed for a bag that holds poses")
    add("--topic", help="of point clouds, in a bag with several")
    add("--pose-topic", help="of odometry, poses or transforms, in a bag with several")
    add("--rgbd", type=Path, help="folder of an indoor RGB-D sequence instead")
    add("--data", type=Path, metavar="SEQUENCE", help="a data set with poses and labelled identities instead")
    add(
        "--perfect",
        action="store_true",
        help="with --data: see its labels, not a detector's boxes",
    )
    add("--weights", default="pointpillars-kitti", help="of the detector, with --data")
    add(
        "--moving", type=Path, metavar="FILE.webp", help="with --data: the drive as a moving picture; or .gif"
    )
    add("--out", type=Path, default=Path("out/remember"), help="folder for the picture")
    add("--store", type=Path, help="keep the stores in this new folder, for the recall command")
    add("--rerun", metavar="FILE.rrd", help="record for the Rerun viewer; 'live' opens it")
    add("--mcap", type=Path, metavar="FILE.mcap", help="record for Foxglove")
    add("--report", type=Path, metavar="FILE.html", help="write the drive as one page")
    add("--json", action="store_true", help="print the figures as JSON and nothing else")
    options = parser.parse_args()
    check(parser, options)
    torch.set_num_threads(options.threads)
    options.show = not options.json and sys.stderr.isatty()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            wanted = {"rerun": options.rerun, "mcap": options.mcap, "examples": options.report is not None}
            with Viewing(**wanted) as options.view:
                run(options, options.store or Path(scratch))
        except (DataError, PoseError, ValueError, OSError, ImportError) as error:
            raise SystemExit(f"remember: {failure(error)}") from error


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Fill in what was not given, and refuse what makes no sense."""
    defaults = {"days": (3, 2), "loops": (2, 1), "step": (4.0, 5.0), "stop": (30, 8), "questions": (12, 6)}
    for name, (usual, short) in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, short if options.short else usual)
    if options.threads < 1:
        parser.error("--threads must be at least 1")
    if options.days < 1 or not 1 <= options.loops <= 4 or options.stop < 0 or options.questions < 1:
        parser.error("--days and --questions must be at least 1, --loops from 1 to 4, --stop not negative")
    if not 0.5 <= options.step <= 20.0:
        parser.error("--step must be from 0.5 to 20 metres")
    bag = options.scans is not None and is_bag(options.scans)
    if (options.scans is None) != (options.poses is None) and not bag:
        parser.error("--scans and --poses belong together")
    if not bag and (options.topic or options.pose_topic):
        parser.error("--topic and --pose-topic are for --scans with a ROS 2 bag or an MCAP file")
    if options.report is not None and options.report.suffix.lower() not in (".html", ".htm"):
        parser.error(f"--report {options.report}: expected a name that ends in .html")
    if options.rgbd is not None and (options.rerun or options.mcap or options.report):
        parser.error("--rerun, --mcap and --report are for LiDAR drives, not for --rgbd")
    if sum(given is not None for given in (options.scans, options.rgbd, options.data)) > 1:
        parser.error("give one of --scans, --rgbd and --data")
    if options.perfect and options.data is None:
        parser.error("--perfect needs --data")
    if options.moving is not None and options.data is None:
        parser.error("--moving needs --data")
    if options.moving is not None and options.moving.suffix.lower() not in (".webp", ".gif"):
        parser.error(f"--moving {options.moving}: expected a name that ends in .webp or .gif")
    if options.data is not None and (options.rerun or options.mcap):
        parser.error("--rerun and --mcap are not for --data: perceive track --rerun shows tracks")
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
    elif options.data is not None:
        report, results = drive_labelled(options, folder)
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
    if results:
        show_results(console, results)
    for line in [*report.get("answers", ()), *report.get("recognised", ())]:
        console.print(line)
    console.print(f"picture: {report['picture']}")
    if report.get("scans_without_pose"):
        console.print(f"{report['scans_without_pose']} scans had no pose within a second, and were left out")
    if report.get("report"):
        console.print(f"report: {report['report']}")
    if options.store is not None:
        console.print(f"look yourself: recall query {folder / 'ours'} --text Car")


if __name__ == "__main__":
    with reported_file_errors("remember"):
        main()
