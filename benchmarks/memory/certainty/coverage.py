"""Answers with a guaranteed error: how often they hold the truth, and how often they are "unknown".

    python -m benchmarks.memory.certainty.coverage

**Still there, seconds later.** Labelled real drives. An object is at a place in one frame. 0.5 to 8 s later,
the label is still within 1 m of it, or a scan saw through the place. Answers for one drive are calibrated by
the other drives.
**Still there, the next day.** A robot drives through simulated towns for a week, remembers what a detector
with errors would find, and marks what it finds gone. Before each day it is asked about every object that it
believes present; its own history calibrates the answers.
**Been here.** Scans of one part of a drive, and of other drives, asked in the store of the other part. The
store's own places calibrate the answers.
Data: ``$SPARSIGHT_DATA``, by default ``../shared/data``.
"""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import Progress

from benchmarks.lib.demos import drive_module
from benchmarks.lib.environment import data_root
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.memory.certainty.locate import Case, cases
from benchmarks.memory.certainty.revisits import real_drives, towns
from benchmarks.publish.screen import tables
from memory import Filter, MemoryStore, Query
from memory.exchange.scenes import SCENE_ENCODER
from memory.observe.free_space import FreeOptions, Looks
from memory.observe.views import seen_through
from memory.questions.guarantee.answering import guaranteed_place, guaranteed_presence
from memory.questions.guarantee.conformal import cases_needed
from memory.questions.guarantee.persistence import Outcome, PresenceCalibration
from memory.questions.recognising import HERE_M, SAME_PLACE_M
from perception import Detections
from perception.data import open_data_set
from perception.scans.free import free_distances

CONFIDENCES = (0.8, 0.9, 0.95)
#: Pauses of real drives in seconds, radius of a place in metres, and distance between asked frames.
_GAPS_S, _SAME_M, _EVERY = (0.5, 1.0, 2.0, 4.0, 8.0), 1.0, 5
#: Simulated detector: share of missed objects, errors in metres, and sizes by label.
_MISSED, _ERROR_M = 0.1, 0.1
_SIZES = {"Car": (4.2, 1.8, 1.5), "Pedestrian": (0.6, 0.6, 1.7), "Cyclist": (1.7, 0.6, 1.7)}
_DAYS, _STEP_M = 7, 5.0


class JudgedAnswer(NamedTuple):
    """An answer at one confidence, and the truth."""

    confidence: float
    verdict: str
    available: bool
    true: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = common_parser(__doc__, "coverage", quick="one town, and no stores of drives")
    data = data_root()
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--towns", type=int, nargs="+", default=[1, 2, 3], help="seeds (1 2 3)")
    parser.add_argument("--work", type=Path, help="folder that keeps stores and queries for another run")
    options = parse(parser, arguments)
    configure(torch.device("cpu"), options.threads)
    seeds = options.towns[:1] if options.quick else options.towns
    answers: dict[tuple[str, str], list[JudgedAnswer]] = {}
    with tempfile.TemporaryDirectory() as folder, Progress(disable=options.json) as progress:
        outcomes = dict(progress.track(_drive_outcomes(options.data), description="real drives"))
        for drive in outcomes:
            answers["seconds later", drive] = list(answers_of_drive(drive, outcomes))
        for seed in progress.track(seeds, description="towns"):
            answers["next day", f"town {seed}"] = list(answers_of_town(seed, Path(folder) / f"town-{seed}"))
        if not options.quick:
            drives = chain(real_drives(options.data), towns([0, 1, 2]))
            place_cases = cases(progress.track(drives, description="places"), options.work or Path(folder))
            for case in progress.track(place_cases, description="asking"):
                name = f"{case.name}, {case.group}"
                answers["been here", name] = list(answers_of_places(case, place_cases))
    values = result(
        "coverage",
        torch.device("cpu"),
        {"quick": options.quick, "towns": seeds, "days": _DAYS},
        summary=summed(answers),
        cases=[
            {
                "question": question,
                "drive": drive,
                "asked": len(some) // len(CONFIDENCES),
                "rows": rows_of(some),
            }
            for (question, drive), some in answers.items()
        ],
        notes=["covered: the answer holds the truth; unknown holds both; of answers that are available"],
    )
    save(values, options)
    show(values, tables(values, "coverage", "coverage-drives"), values["notes"], as_json=options.json)
    return 0


def _drive_outcomes(data: Path) -> Iterator[tuple[str, list[Outcome]]]:
    """Yield the cases of each labelled drive with poses, by its name."""
    for folder in sorted((data / "kitti_sequences").glob("*/")):
        yield f"KITTI {folder.name[-4:]}", outcomes_of(open_data_set(folder))
    if (data / "nuscenes").is_dir():
        yield "nuScenes 0523", outcomes_of(open_data_set(data / "nuscenes", split="scene-0523"))
    for side in ("vehicle", "infrastructure"):
        if (data / "dair_v2x").is_dir():
            yield f"DAIR {side}", outcomes_of(open_data_set(data / "dair_v2x" / f"{side}-side"))


def outcomes_of(data_set: Any) -> list[Outcome]:
    """Return the cases of a labelled drive; the key is the place in cells of 2 m and the label."""
    frames = [data_set[number] for number in range(len(data_set))]
    times = np.array([n * 10**8 if f.time_ns is None else f.time_ns for n, f in enumerate(frames)])
    seconds = (times - times[0]) / 1e9
    boxes = [drive_module("labelled.scans").in_map(frame.boxes, frame.pose) for frame in frames]
    labels = [np.array(frame.labels, np.str_) for frame in frames]
    looks = Looks(0.0)
    for frame, time_ns in zip(frames, times.tolist(), strict=True):
        pose = frame.pose
        yaw = math.atan2(pose[1, 0], pose[0, 0])
        looks.add("map", time_ns, pose[:3, 3].tolist(), yaw, free_distances(frame.cloud))
    views = looks.views("map", FreeOptions())
    found: list[Outcome] = []
    for now in range(0, len(frames), _EVERY):
        if not len(boxes[now]):
            continue
        through = seen_through(views, boxes[now][:, :3], boxes[now][:, 4], boxes[now][:, 3])
        for row, box in enumerate(boxes[now]):
            label = str(labels[now][row])
            there = [
                _nearest_m(box, label, some, names) <= _SAME_M
                for some, names in zip(boxes, labels, strict=True)
            ]
            first = now
            while first > 0 and (there[first - 1] or (first > 1 and there[first - 2])):
                first -= 1
            key = crc32(f"{label} {round(float(box[0]) / 2)} {round(float(box[1]) / 2)}".encode())
            for gap in _GAPS_S:
                later = int(np.abs(seconds - seconds[now] - gap).argmin())
                if abs(seconds[later] - seconds[now] - gap) > 0.3:
                    continue
                if there[later] or through[later, row]:
                    known_s = float(seconds[now] - seconds[first])
                    found.append(Outcome(key, 0, label.casefold(), known_s, gap, there[later]))
    return found


def _nearest_m(
    box: NDArray[np.float64], label: str, boxes: NDArray[np.float64], labels: NDArray[np.str_]
) -> float:
    away = np.hypot(*(boxes[:, :2] - box[:2]).T)[labels == label]
    return float(away.min(initial=math.inf))


def answers_of_drive(drive: str, outcomes: dict[str, list[Outcome]]) -> Iterator[JudgedAnswer]:
    """Yield the answers for a drive, calibrated by the other drives."""
    others = [
        outcome._replace(key=outcome.key * 10 + number, group=number)
        for number, (name, of_drive) in enumerate(outcomes.items())
        if name != drive
        for outcome in of_drive
    ]
    calibration = PresenceCalibration.of(others)
    for outcome in outcomes[drive]:
        for confidence in CONFIDENCES:
            verdict = calibration.answer(outcome.label, outcome.known_s, outcome.gap_s, confidence)
            available = min(calibration.counts(outcome.label)) >= cases_needed(confidence)
            yield JudgedAnswer(confidence, verdict, available, outcome.there)


def answers_of_town(seed: int, folder: Path) -> Iterator[JudgedAnswer]:
    """Yield the answers of a robot before each day in a town, calibrated by its own history."""
    frames, town, robots = (drive_module(name) for name in ("frames", "town", "robot"))
    drive = frames.DriveConfig(_DAYS, 1, _STEP_M, 0, seed)
    built = town.Town(town.TownConfig(), _DAYS, seed)
    noise = np.random.default_rng([seed, 51])
    with MemoryStore.open(folder, dim=256, config=robots.CONFIG) as store:
        robot = robots.Robot(store, senses=_true_senses(noise))
        for day in range(_DAYS):
            start_ns = frames.START_NS + day * frames.DAY_NS + frames.LOOP_HOURS[0] * frames.HOUR_NS
            if day:
                there = list(town.positions(built.scene(day, seed * 10_000 + day * 10), 0.0).values())
                for memory in store.find(Filter(kinds=("object",), states=("present",)), vectors=False):
                    is_there = any(
                        math.dist(memory.place[:2], place[:2]) <= 1.5
                        for label, place in there
                        if label == memory.label
                    )
                    for confidence in CONFIDENCES:
                        answer = guaranteed_presence(store, memory, start_ns, confidence)
                        yield JudgedAnswer(confidence, answer.verdict, answer.available, is_there)
            last_ns = start_ns
            for frame in frames.simulated_frames(built, drive, [day]):
                robot.see(frame, ask_later=True)
                last_ns = frame.time_ns
            robot.end_day(last_ns + 1)


def _true_senses(noise: np.random.Generator) -> Callable[[Any], Any]:
    """Return a detector that finds what is visible, with errors and misses."""
    senses = drive_module("senses")

    def perceive(frame: Any) -> Any:
        boxes, labels = [], []
        lidar_from_map = np.linalg.inv(frame.map_from_lidar)
        for place in frame.visible:
            if noise.random() < _MISSED:
                continue
            x, y, _, _ = lidar_from_map @ np.array([*place.position[:2], 0.0, 1.0])
            size = _SIZES.get(place.label, _SIZES["Car"])
            dx, dy = noise.normal(0.0, _ERROR_M, 2)
            boxes.append([x + dx, y + dy, -0.9, *size, 0.0])
            labels.append(place.label)
        scores = np.full(len(boxes), 0.9, np.float32)
        found = Detections(np.array(boxes, np.float32).reshape(-1, 7), scores, labels)
        return senses.Percept(found, np.ones(256, np.float32), senses.free_distances(frame), 0.0)

    return perceive


def answers_of_places(case: Case, every: Sequence[Case]) -> Iterator[JudgedAnswer]:
    """Yield the answers to "been here?" for the queries of a drive and of the other drives."""
    others = {other.name: other for other in every if other.name != case.name}
    with MemoryStore.open(case.store, readonly=True) as store:
        places = store.find(Filter(kinds=("place",)), vectors=False)
        points = np.array([[*each.place[:2], each.yaw] for each in places])
        queries: list[tuple[Any, bool]] = []
        for view, pose in zip(case.views, case.poses, strict=True):
            away = np.hypot(points[:, 0] - pose[0], points[:, 1] - pose[1])
            turned = np.abs(np.remainder(points[:, 2] - pose[2] + math.pi, math.tau) - math.pi)
            if ((away <= SAME_PLACE_M) & (turned <= 0.5)).any():
                queries.append((view, True))
            elif away.min() > HERE_M:
                queries.append((view, False))
        queries += [(view, False) for other in others.values() for view in other.views[::3]]
        for view, was_here in queries:
            vector = next(each.embeddings[SCENE_ENCODER] for each in view if each.kind == "place")
            hits = store.query(Query(embedding=vector, encoder=SCENE_ENCODER, kinds=("place",), k=1))
            for confidence in CONFIDENCES:
                answer = guaranteed_place(store, hits, SCENE_ENCODER, confidence)
                yield JudgedAnswer(confidence, answer.verdict, answer.available, was_here)


def rows_of(answers: Sequence[JudgedAnswer]) -> list[dict[str, Any]]:
    """Return coverage by confidence, over all answers and by the truth."""
    rows = []
    for confidence in CONFIDENCES:
        of_confidence = [answer for answer in answers if answer.confidence == confidence]
        available = [answer for answer in of_confidence if answer.available]
        groups = {
            "all": available,
            "yes": [answer for answer in available if answer.true],
            "no": [answer for answer in available if not answer.true],
        }
        row = {"confidence": confidence, "available": len(available), "asked": len(of_confidence)}
        rows.append(row | {name: _coverage_of(group) for name, group in groups.items()})
    return rows


def _coverage_of(answers: Sequence[JudgedAnswer]) -> dict[str, int]:
    """Return how many answers there are, hold the truth, and are "unknown"."""
    return {
        "asked": len(answers),
        "covered": sum(each.verdict in ("unknown", "yes" if each.true else "no") for each in answers),
        "unknown": sum(each.verdict == "unknown" for each in answers),
    }


def summed(answers: dict[tuple[str, str], list[JudgedAnswer]]) -> dict[str, list[dict[str, Any]]]:
    """Return coverage by question."""
    by_question: dict[str, list[JudgedAnswer]] = defaultdict(list)
    for (question, _), of_drive in answers.items():
        by_question[question] += of_drive
    return {question: rows_of(all_drives) for question, all_drives in by_question.items()}


if __name__ == "__main__":
    raise SystemExit(main())
