"""Frames of one drive: past scans of a frame, and velocities of its objects from their tracks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from perception.rigid_motion import Matrix, inverse
from perception.scans.sweeps import FRAME_S, PastScan
from perception.types import FloatArray, PointCloud

#: Velocities come from boxes up to this much earlier and later; nuScenes labels every 0.5 s.
VELOCITY_WINDOW_S = 0.6


class DriveFrame(Protocol):
    """The part of :class:`~perception.data.types.Frame` that a drive needs."""

    @property
    def alone(self) -> PointCloud:
        """The scan without past scans."""
        ...

    @property
    def boxes(self) -> FloatArray:
        """(M, 7) labelled boxes."""
        ...

    @property
    def track_ids(self) -> npt.NDArray[np.int64] | None:
        """(M,) identities."""
        ...

    @property
    def pose(self) -> Matrix | None:
        """(4, 4) world_from_lidar."""
        ...

    @property
    def time_ns(self) -> int | None:
        """Time of the scan."""
        ...


class DrivePlace(NamedTuple):
    """Place of a frame in its drive.

    Attributes:
        frame: the frame.
        frame_of: returns the frame of a name.
        names: frames of the drive in the order of time.
        place: index of the frame.
        sweeps, max_age_s: number and greatest age of past scans.
    """

    frame: DriveFrame
    frame_of: Callable[[str], DriveFrame]
    names: Sequence[str]
    place: int
    sweeps: int
    max_age_s: float

    def past(self) -> list[DriveFrame]:
        """Return the earlier frames whose scans are merged, latest first."""
        return self._around(range(self.place - 1, max(-1, self.place - 1 - self.sweeps), -1), self.max_age_s)

    def before(self) -> list[DriveFrame]:
        """Return the frames that tell velocities before this one, latest first."""
        return self._around(range(self.place - 1, -1, -1), VELOCITY_WINDOW_S)

    def after(self) -> list[DriveFrame]:
        """Return the frames that tell velocities after this one, earliest first."""
        return self._around(range(self.place + 1, len(self.names)), VELOCITY_WINDOW_S)

    def _around(self, places: Iterable[int], within_s: float) -> list[DriveFrame]:
        """Return the frames of places, nearest first, until one is farther away in time."""
        found = []
        for place in places:
            other = self.frame_of(self.names[place])
            ahead = 1 if place < self.place else -1
            age_s = ahead * age_of(self.frame, other, self.place - place)
            if not 0 < age_s <= within_s:
                break
            found.append(other)
        return found


def age_of(frame: DriveFrame, other: DriveFrame, steps: int) -> float:
    """Return the seconds from another frame to a frame, ``steps`` scans of a 10 Hz sensor without times."""
    if frame.time_ns is None or other.time_ns is None:
        return steps * FRAME_S
    return (frame.time_ns - other.time_ns) * 1e-9


def past_scans(frame: DriveFrame, past: Sequence[DriveFrame]) -> Iterator[PastScan]:
    """Yield the scans of earlier frames of a drive for :func:`~perception.scans.sweeps.merge_scans`.

    Args:
        frame: the current frame.
        past: earlier frames, latest first; those without a pose are left out.
    """
    if frame.pose is None:
        return
    back = inverse(frame.pose)
    for steps, other in enumerate(past, 1):
        if other.pose is not None:
            yield PastScan(other.alone, back @ other.pose, age_of(frame, other, steps))


def track_velocities(
    frame: DriveFrame, before: Sequence[DriveFrame], after: Sequence[DriveFrame]
) -> FloatArray:
    """Return (M, 2) float32 velocities over the ground of a frame's boxes, m/s in its LiDAR frame.

    Each is the way between the centres of the first and last box of the track in these frames, over the time
    between. NaN without a second box.

    Args:
        frame: with a pose, identities and boxes.
        before, after: frames of the drive before and after, nearest first, not farther away than
            :data:`VELOCITY_WINDOW_S`.
    """
    assert frame.pose is not None
    assert frame.track_ids is not None
    seen: dict[int, list[tuple[float, npt.NDArray[np.float64]]]] = {}
    for sign, others in ((1, before), (-1, after)):
        for steps, other in enumerate(others, 1):
            if other.pose is not None and other.track_ids is not None:
                for track, centre in _centres(other).items():
                    seen.setdefault(track, []).append((-age_of(frame, other, sign * steps), centre))
    own = _centres(frame)
    turn = inverse(frame.pose)[:3, :3]
    found = np.full((len(frame.track_ids), 2), np.nan, np.float32)
    for row, track in enumerate(frame.track_ids.tolist()):
        moments = [(0.0, own[track]), *seen.get(track, ())]
        first, last = (choose(moments, key=lambda moment: moment[0]) for choose in (min, max))
        if last[0] > first[0]:
            found[row] = (turn @ (last[1] - first[1]) / (last[0] - first[0]))[:2]
    return found


def _centres(frame: DriveFrame) -> dict[int, Matrix]:
    """Return the box centres in the map by identity."""
    assert frame.pose is not None
    assert frame.track_ids is not None
    places = frame.boxes[:, :3].astype(np.float64) @ frame.pose[:3, :3].T + frame.pose[:3, 3]
    return dict(zip(frame.track_ids.tolist(), places, strict=True))
