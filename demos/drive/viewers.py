"""Live views of a drive: recordings for viewers, and example scans for its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from drive.frames import Frame
from drive.robot import Robot
from drive.senses import LEAST_SCORE, Percept
from memory import Memory
from memory.query import Filter
from perception import Detections, PointCloud
from perception.visualise.recording import Mark, RecordingMoment
from perception.visualise.recordings import Recordings, open_recordings

#: Scans between two updates of the shown memories.
EVERY = 10
#: Number of example scans of a report, and least distance between them in scans.
EXAMPLES, APART = 6, 5


@dataclass(frozen=True, eq=False)
class Example:
    """A scan to show.

    Attributes:
        number: of the scan in the drive, from 0.
        name: of the frame.
        time_ns: nanoseconds since the epoch.
        cloud, detections: in the LiDAR frame.
    """

    number: int
    name: str
    time_ns: int
    cloud: PointCloud
    detections: Detections


class Day(NamedTuple):
    """A day of the drive.

    Attributes:
        number: from 0.
        first: number of its first scan.
    """

    number: int
    first: int


class DriveViewer:
    """Viewer of a drive, with any combination of outputs.

    Args:
        rerun: an .rrd file, ``live``, or the address of a viewer.
        mcap: an .mcap file for Foxglove.
        examples: collect example scans for a report.
    """

    def __init__(self, *, rerun: str | None = None, mcap: Path | None = None, examples: bool = False) -> None:
        self.recordings: Recordings = open_recordings(rerun=rerun, mcap=mcap, title="a drive")
        self.days: list[Day] = []
        self._wants_examples = examples
        self._examples: list[Example] = []
        self._moment = RecordingMoment(-1, None)

    def __call__(self, robot: Robot, frame: Frame, percept: Percept) -> None:
        """Record a scan after it was remembered."""
        new_day = not self.days or self.days[-1].number != frame.day
        self._moment = RecordingMoment(self._moment.number + 1, frame.time_ns)
        if new_day:
            self.days.append(Day(frame.day, self._moment.number))
        if self._wants_examples:
            self._keep(frame, percept)
        if not self.recordings:
            return
        self.recordings.scan(
            frame.cloud, percept.detections, self._moment, map_from_lidar=frame.map_from_lidar
        )
        offered, held = robot.tally.timeline[-1]
        numbers = {"offered": offered, "held": held, "detection_ms": percept.detection_ms}
        self.recordings.numbers(numbers, self._moment)
        if new_day or self._moment.number % EVERY == 0:
            self.recordings.marks(marks_of(robot.store.find(Filter(), vectors=False)), self._moment)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.recordings.close()

    def finish(self, memories: Sequence[Memory]) -> None:
        """Record the final memories; the files are finished at the end of the block."""
        if self._moment.number >= 0:
            self.recordings.marks(marks_of(memories), self._moment)

    @property
    def examples(self) -> list[Example]:
        """Scans with many detections, at a minimum distance from each other, in order."""
        return sorted(self._examples, key=lambda example: example.number)

    def _keep(self, frame: Frame, percept: Percept) -> None:
        example = Example(self._moment.number, frame.name, frame.time_ns, frame.cloud, percept.detections)
        near = [other for other in self._examples if example.number - other.number < APART]
        if any(_sure(other) >= _sure(example) for other in near):
            return
        kept = [other for other in self._examples if other not in near]
        kept = sorted([*kept, example], key=lambda other: (-_sure(other), other.number))
        self._examples = kept[:EXAMPLES]


def _sure(example: Example) -> int:
    """Return the number of its confident detections."""
    scores = example.detections.scores
    return int((scores >= min(LEAST_SCORE.values())).sum())


def marks_of(memories: Sequence[Memory]) -> list[Mark]:
    """Return memories as marks: objects as boxes, places as points."""
    marks = []
    for memory in memories:
        size = tuple(float(value) for value in memory.payload.get("size_m", ()))
        times = "" if memory.count == 1 else f" ×{memory.count}"
        gone = memory.state in ("gone", "moved")
        text = f"{memory.label or memory.caption or memory.kind}{times}{' (gone)' if gone else ''}"
        marks.append(
            Mark(
                memory.id or 0,
                memory.label or memory.kind,
                text,
                memory.position,
                (size[0], size[1], size[2]) if len(size) == 3 else (0.0, 0.0, 0.0),
                memory.yaw,
                gone,
            )
        )
    return marks
