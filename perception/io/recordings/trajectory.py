"""Interpolated motion of one frame in another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.spatial.transform import Rotation, Slerp

from perception.io.recordings.stamped import StampedTransform

#: Largest time difference to the nearest pose.
MAX_GAP_S = 1.0
_Matrix = npt.NDArray[np.float64]


class Trajectory:
    """The motion of a frame, interpolated linearly in position and spherically in rotation.

    Args:
        transforms: transforms of one parent and child, in any order; the last of equal times counts.
        static: True if the frame never moves.
    """

    def __init__(self, transforms: list[StampedTransform], *, static: bool = False) -> None:
        by_time = {one.time_ns: one for one in transforms}
        times = np.array(sorted(by_time), np.int64)
        self.times_ns = times
        self.static = static
        self._moved = np.stack([by_time[moment].translation for moment in times.tolist()])
        turned = Rotation.from_quat(np.stack([by_time[moment].quaternion for moment in times.tolist()]))
        self._turned = turned
        self._between = (
            Slerp((times - times[0]).astype(np.float64), turned) if len(times) > 1 and not static else None
        )

    @property
    def span_ns(self) -> tuple[int, int]:
        """First and last time."""
        return int(self.times_ns[0]), int(self.times_ns[-1])

    def at(self, time_ns: int) -> _Matrix | None:
        """Return (4, 4) parent_from_child, or None without a transform within a second."""
        times, here = self.times_ns, np.eye(4)
        after = int(np.searchsorted(times, time_ns))
        near = times[max(after - 1, 0) : after + 1]
        if not self.static and int(np.abs(near - time_ns).min()) > MAX_GAP_S * 1e9:
            return None
        if self.static or self._between is None:
            here[:3, :3], here[:3, 3] = self._turned[-1].as_matrix(), self._moved[-1]
            return here
        inside = float(np.clip(time_ns, times[0], times[-1]) - times[0])
        since = (times - times[0]).astype(np.float64)
        here[:3, :3] = self._between(inside).as_matrix()
        here[:3, 3] = [np.interp(inside, since, self._moved[:, k]) for k in range(3)]
        return here
