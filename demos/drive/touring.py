"""The whole drive, day after day; then questions to the robot's store and to two simpler ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drive.asking import questions_about
from drive.comparing import Judged, added, judged, size_of
from drive.frames import DAY_NS, START_NS, Frame
from drive.perceiving import Percept
from drive.remembering import CONFIG, Robot
from drive.truth import Truth
from memory import Memory, MemoryStore
from memory.query import Filter

#: Numbers of a vector of the scene encoder.
DIM = 256
#: Is told of each frame once it is remembered.
Watch = Callable[[Robot, Frame, Percept], None]


@dataclass
class Tour:
    """What a drive leaves beside memories.

    Attributes:
        truth: what was there.
        looks: (2,) positions in metres that were not remembered as places, with their vectors.
        since: number of the store's last operation before the last day.
    """

    truth: Truth = field(default_factory=Truth)
    looks: list[tuple[NDArray[np.float64], NDArray[np.float32]]] = field(default_factory=list)
    since: int = 0


@dataclass(frozen=True)
class Remembered:
    """A drive, and how well it is remembered.

    Attributes:
        robot: that drove.
        tour: what there was.
        memories: all that its store holds.
        results: of its store, of one that keeps everything, and of one that keeps the latest.
    """

    robot: Robot
    tour: Tour
    memories: list[Memory]
    results: list[Judged]


def drive(
    robot: Robot,
    frames: Iterable[Frame],
    days: int,
    *,
    watch: Watch | None = None,
) -> Tour:
    """Let a robot see all frames, and tidy up after every day.

    Args:
        robot: with its store.
        frames: in the order of time.
        days: of the drive; of the last one, every fourth place is asked for and not remembered.
        watch: is told of each frame once it is remembered.

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
        raise ValueError("the drive has no scan")
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
) -> Remembered:
    """Drive, remember, and judge three stores by the same questions.

    Args:
        folder: for the stores; new.
        frames: of a simulated drive.
        days: of the drive.
        each: most questions of a kind.
        seed: chooses what is asked.
        capacity: most memories of the robot's store.
        senses: make percepts of scans; detector and encoder where not given.
        watch: is told of each frame once it is remembered.

    Raises:
        ValueError: there is no frame.
    """
    with MemoryStore.open(folder / "ours", dim=DIM, config=replace(CONFIG, capacity=capacity)) as store:
        robot = Robot(store, senses=senses)
        tour = drive(robot, frames, days, watch=watch)
        questions = questions_about(tour.truth, tour.looks, each=each, seed=seed)
        results = [judged("ours", store, tour.since, tour.truth, questions)]
        memories = store.find(Filter())
    rest: dict[str, Sequence[Memory]] = {
        "everything": robot.observations,
        "latest": robot.observations[-len(memories) :],
    }
    for name, observations in rest.items():
        other, since = added(folder / name, observations, START_NS + (days - 1) * DAY_NS, DIM)
        with other:
            results.append(judged(name, other, since, tour.truth, questions))
    # Once they are closed: while they are open there is a journal that is not yet in the database.
    results = [replace(result, bytes=size_of(folder / result.name)) for result in results]
    return Remembered(robot, tour, memories, results)
