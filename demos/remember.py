"""Drive a robot through a town for some days; it detects, remembers, and answers questions.

The town is simulated, so answers can be checked. Parked cars leave and move, people stand and walk, cyclists
are present on one day, and the robot stops for a while once a day. Its memory is compared with a store that
keeps every observation, and with one that keeps the latest.

    python demos/remember.py                                    # three days, a few minutes
    python demos/remember.py --short                            # two days in a smaller town
    python demos/remember.py --scans SCANS --poses POSES.jsonl  # recorded scans, without ground truth
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
from drive.comparison import StoreEvaluation, evaluate_store, fill_store, size_of
from drive.frames import DAY_NS, START_NS, DriveConfig, recorded_frames, simulated_frames
from drive.indoor import remember_rgbd
from drive.labelled.memory import remember_sequence
from drive.labelled.questions import questions_of
from drive.labelled.scans import LabelObserver, Observer, TrackObserver, moments, observe, open_sequence
from drive.recognition import recognition_answers
from drive.report.console import show_results, show_tally
from drive.report.moving_picture import MovingPicture
from drive.report.page import report_drive
from drive.report.picture import DriveSummary, draw_drive, some_of_each_kind
from drive.robot import CONFIG, Robot, Tally
from drive.tour import DIM, remember
from drive.town import Town, TownConfig
from drive.viewers import DriveViewer
from rich.console import Console
from rich.progress import track

from memory import Filter, MemoryStore, Query
from memory.errors import DataError as PoseError
from memory.questions import Questions
from perception import Detector
from perception.errors import DataError
from perception.io.recordings.bags import is_bag
from sparse_core.common.commands import failure, reported_file_errors

SHORT_TOWN = TownConfig(half_m=(30.0, 24.0), standing=4, walking=2, filled=0.6, leaves=0.2, moves=0.2)


def drive_through_town(
    options: argparse.Namespace, folder: Path
) -> tuple[dict[str, Any], list[StoreEvaluation]]:
    """Drive, remember, compare and draw; return the figures."""
    drive = DriveConfig(options.days, options.loops, options.step, options.stop, options.seed)
    town = Town(SHORT_TOWN if options.short else TownConfig(), options.days, options.seed)
    frames = track(
        simulated_frames(town, drive), "driving", total=drive.frames(town), disable=not options.show
    )
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
        said = recognition_answers(store)
    title = (
        f"{options.days} days, {robot.tally.offered} observations, {len(done.memories)} memories,"
        f" {results[0].right} of {len(results[0].answers)} answers right"
    )
    drawn = DriveSummary(
        title,
        robot.path,
        robot.tally.timeline,
        done.memories,
        robot.lost,
        done.tour.truth.there(),
        results[0].answers,
    )
    picture = draw_drive(options.out / "remember.png", drawn)
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
    """Remember recorded scans, which have no ground truth and thus no score."""
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
            frames = recorded_frames(options.scans, options.poses)
        for frame in track(frames, "remembering", disable=not options.show):
            if last is not None and frame.day != last.day:
                robot.end_day(last.time_ns)
            options.view(robot, frame, robot.see(frame))
            last = frame
        if last is None:
            raise SystemExit(f"remember: no scans in {options.scans}; pass a folder, bag or MCAP with scans")
        robot.end_day(last.time_ns)
        memories = [hit.memory for hit in store.query(Query(k=100_000))]
        ask = Questions(store)
        labels = sorted({memory.label for memory in memories if memory.kind == "object"})
        said = [str(ask.last_seen(label)) for label in labels] + [str(ask.summarise())]
        said += recognition_answers(store)
        title = f"{robot.tally.offered} observations, {len(memories)} memories"
        drawn = DriveSummary(title, robot.path, robot.tally.timeline, memories, robot.lost)
        picture = draw_drive(options.out / "remember.png", drawn)
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


def drive_labelled(options: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[StoreEvaluation]]:
    """Track, remember, drive back, and check the answers against the labels."""
    frames = open_sequence(options.data)
    moving = options.moving and MovingPicture(np.array([frame.pose[:2, 3] for frame in frames]))
    sees: Observer = LabelObserver()
    if not options.perfect:
        detector = Detector.from_pretrained(options.weights)
        sees = TrackObserver(lambda frame: detector(frame.cloud))
    with MemoryStore.open(folder / "ours", dim=DIM, config=CONFIG) as store:
        passed = track(
            moments(frames), "driving there and back", total=2 * len(frames), disable=not options.show
        )
        seen = observe(iter(passed), sees)
        driven = remember_sequence(store, moving.watched(seen, store) if moving else seen)
        questions = questions_of(driven.truth)
        results = [evaluate_store("by tracks", store, driven.since, driven.truth, questions)]
        memories = store.find(Filter())
    if moving:
        told = some_of_each_kind(results[0].answers, 3)
        moving.save(options.moving, memories, [f"{answer.text}  {answer.said}" for answer in told])
    other, since = fill_store(folder / "every", driven.every, START_NS + DAY_NS, DIM)
    with other:
        results.append(evaluate_store("every box", other, since, driven.truth, questions))
    title = (
        f"{options.data.name}: {driven.tally.offered} boxes, {len(memories)} memories,"
        f" {results[0].right} of {len(results[0].answers)} answers right"
    )
    drawn = DriveSummary(
        title,
        driven.path,
        driven.tally.timeline,
        memories,
        places=driven.truth.there(),
        answers=results[0].answers,
        trails=list(driven.trails.values()),
    )
    picture = draw_drive(options.out / "remember.png", drawn)
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
    """Return plain numbers; times as median and 95th percentile."""
    numbers = asdict(tally)
    numbers["held"] = tally.held
    # asdict turns counters into lists of pairs.
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
    add("--days", type=int, help="number of days (3, with --short 2)")
    add("--loops", type=int, help="loops per day, at most 4 (2, with --short 1)")
    add("--step", type=float, help="metres between scans (4, with --short 5)")
    add("--stop", type=int, help="scans at the stop of each day (30, with --short 8)")
    add("--questions", type=int, help="most questions per kind (12, with --short 6)")
    add("--capacity", type=int, help="most memories; surplus ones are forgotten at the end of a day")
    add("--seed", type=int, default=0, help="seed of town and noise (0)")
    add("--threads", type=int, default=1, help="CPU threads of the detector (1)")
    add("--short", action="store_true", help="use a smaller town and fewer scans")
    add("--scans", type=Path, help="use recorded scans: a folder, ROS 2 bag or MCAP file")
    add("--poses", type=Path, help="poses of the scans; not needed for a bag with poses")
    add("--topic", help="topic of point clouds, in a bag with several")
    add("--pose-topic", help="topic of odometry, poses or transforms, in a bag with several")
    add("--rgbd", type=Path, help="use an indoor RGB-D sequence in this folder")
    add("--data", type=Path, metavar="SEQUENCE", help="use a data set with poses and labelled track ids")
    add(
        "--perfect",
        action="store_true",
        help="with --data: use its labels instead of detections",
    )
    add("--weights", default="pointpillars-kitti", help="weights of the detector, with --data")
    add("--moving", type=Path, metavar="FILE.webp", help="with --data: write an animation (.webp or .gif)")
    add("--out", type=Path, default=Path("out/remember"), help="folder for the picture")
    add("--store", type=Path, help="write the stores to this new folder, for the recall command")
    add("--rerun", metavar="FILE.rrd", help="record for the Rerun viewer; 'live' opens it")
    add("--mcap", type=Path, metavar="FILE.mcap", help="record for Foxglove")
    add("--report", type=Path, metavar="FILE.html", help="write a report page")
    add("--json", action="store_true", help="print the figures as JSON and nothing else")
    options = parser.parse_args()
    check(parser, options)
    torch.set_num_threads(options.threads)
    options.show = not options.json and sys.stderr.isatty()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            wanted = {"rerun": options.rerun, "mcap": options.mcap, "examples": options.report is not None}
            with DriveViewer(**wanted) as options.view:
                run(options, options.store or Path(scratch))
        except (DataError, PoseError, ValueError, OSError, ImportError) as error:
            raise SystemExit(f"remember: {failure(error)}") from error


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Fill in defaults and refuse invalid combinations."""
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
        parser.error("--scans needs --poses, and --poses needs --scans")
    if not bag and (options.topic or options.pose_topic):
        parser.error("--topic and --pose-topic need --scans with a ROS 2 bag or an MCAP file")
    if options.report is not None and options.report.suffix.lower() not in (".html", ".htm"):
        parser.error(f"--report {options.report}: choose a name that ends in .html")
    if options.rgbd is not None and (options.rerun or options.mcap or options.report):
        parser.error("--rgbd does not support --rerun, --mcap and --report; remove them")
    if sum(given is not None for given in (options.scans, options.rgbd, options.data)) > 1:
        parser.error("--scans, --rgbd and --data exclude each other; pass one of them")
    if options.perfect and options.data is None:
        parser.error("--perfect needs --data")
    if options.moving is not None and options.data is None:
        parser.error("--moving needs --data")
    if options.moving is not None and options.moving.suffix.lower() not in (".webp", ".gif"):
        parser.error(f"--moving {options.moving}: choose a name that ends in .webp or .gif")
    if options.data is not None and (options.rerun or options.mcap):
        parser.error("--data does not support --rerun and --mcap; use perceive track --rerun instead")
    if options.store is not None and any(options.store.glob("*/memory.db")):
        parser.error(f"--store {options.store} already contains a store; choose a new folder")


def run(options: argparse.Namespace, folder: Path) -> None:
    """Run the selected drive and print its results."""
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    results: list[StoreEvaluation] = []
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
            f"{report['memories']} views stored as places, {report['bytes'] / 1e3:.0f} kB (no detectable"
            f" objects indoors).\nRecall@1 of {report['asked']} held-out views: "
            + ", ".join(f"{share:.0%} by {name}" for name, share in report["found_again"].items())
            + f" (possible: {report['could_be_found']:.0%}, random: {report['guessed']:.0%})"
        )
    if results:
        show_results(console, results)
    for line in [*report.get("answers", ()), *report.get("recognised", ())]:
        console.print(line)
    console.print(f"picture: {report['picture']}")
    if report.get("scans_without_pose"):
        console.print(f"skipped {report['scans_without_pose']} scans without a pose within a second")
    if report.get("report"):
        console.print(f"report: {report['report']}")
    if options.store is not None:
        console.print(f"next: recall query {folder / 'ours'} --text Car")


if __name__ == "__main__":
    with reported_file_errors("remember"):
        main()
