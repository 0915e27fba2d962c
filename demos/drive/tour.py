"""The whole drive, day after day, followed by questions to the robot's store and to two simpler ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drive.comparison import StoreEvaluation, evaluate_store, fill_store, size_of
from drive.frames import DAY_NS, START_NS, Frame
from drive.questions import questions_about
from drive.robot import CONFIG, Robot
from drive.senses import Percept
from drive.truth import Truth
from memory import Memory, MemoryStore
from memory.query import Filter

#: Vector length of the scene encoder.
DIM = 256
#: Called with each frame after it was remembered.
Watch = Callable[[Robot, Frame, Percept], None]


@dataclass
class Tour:
    """Record of a drive, apart from memories.

    Attributes:
        truth: of the town.
        looks: (2,) positions in metres that were not stored as places, with their vectors.
        since: number of the store's last operation before the last day.
    """

    truth: Truth = field(default_factory=Truth)
    looks: list[tuple[NDArray[np.float64], NDArray[np.float32]]] = field(default_factory=list)
    since: int = 0


@dataclass(frozen=True)
class DriveEvaluation:
    """A drive and the evaluation of its memory.

    Attributes:
        robot: that drove.
        tour: record of the drive.
        memories: content of its store.
        results: of its store, of one that keeps everything, and of one that keeps the latest.
    """

    robot: Robot
    tour: Tour
    memories: list[Memory]
    results: list[StoreEvaluation]


def drive(
    robot: Robot,
    frames: Iterable[Frame],
    days: int,
    *,
    watch: Watch | None = None,
) -> Tour:
    """Let a robot see all frames, and tidy its memory after every day.

    Args:
        robot: with its store.
        frames: in time order.
        days: of the drive. On the last day, every fourth place is queried instead of stored.
        watch: called with each frame after it was remembered.

    Raises:
        ValueError: there is no frame.
    """
    tour, last = Tour(), None
    for number, frame in enumerate(frames):
        if last is not None and frame.day != last.day:
            robot.end_day(last.time_ns)
            tour.since = robot.store.generation
        ask_later = frame.day == days - 1 and number % 4 == 1 and not frame.standing
        percept = robot.see(frame, ask_later=ask_later)
        tour.truth.add(frame)
        if ask_later:
            tour.looks.append((frame.map_from_lidar[:2, 3], percept.vector))
        if watch is not None:
            watch(robot, frame, percept)
        last = frame
    if last is None:
        raise ValueError("the drive has no scans; add at least one")
    robot.end_day(last.time_ns)
    return tour


def remember(
    folder: Path,
    frames: Iterable[Frame],
    *,
    days: int,
    each: int,
    seed: int,
    capacity: int | None = None,
    senses: Callable[[Frame], Percept] | None = None,
    watch: Watch | None = None,
) -> DriveEvaluation:
    """Drive, remember, and evaluate three stores with the same questions.

    Args:
        folder: for the stores; new.
        frames: of a simulated drive.
        days: of the drive.
        each: most questions per kind.
        seed: of the questions.
        capacity: most memories of the robot's store.
        senses: computes percepts of scans; by default detector and encoder.
        watch: called with each frame after it was remembered.

    Raises:
        ValueError: there is no frame.
    """
    with MemoryStore.open(folder / "ours", dim=DIM, config=replace(CONFIG, capacity=capacity)) as store:
        robot = Robot(store, senses=senses)
        tour = drive(robot, frames, days, watch=watch)
        questions = questions_about(tour.truth, tour.looks, each=each, seed=seed)
        results = [evaluate_store("ours", store, tour.since, tour.truth, questions)]
        memories = store.find(Filter())
    rest: dict[str, Sequence[Memory]] = {
        "everything": robot.observations,
        "latest": robot.observations[-len(memories) :],
    }
    for name, observations in rest.items():
        other, since = fill_store(folder / name, observations, START_NS + (days - 1) * DAY_NS, DIM)
        with other:
            results.append(evaluate_store(name, other, since, tour.truth, questions))
    # Measure sizes after closing, because open stores have a separate journal.
    results = [replace(result, bytes=size_of(folder / result.name)) for result in results]
    return DriveEvaluation(robot, tour, memories, results)
