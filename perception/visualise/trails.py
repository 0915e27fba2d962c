"""Where tracked things were until now, to be drawn behind them."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from perception.track.poses import inverse
from perception.track.tracks import Tracks
from perception.types import FloatArray

Float64Array = npt.NDArray[np.float64]
#: Frames that trails go back.
LENGTH = 30


class Trails:
    """Places of things in the last frames, in the map.

    Args:
        length: frames that they go back.
    """

    def __init__(self, length: int = LENGTH) -> None:
        self._frames: deque[dict[int, FloatArray]] = deque(maxlen=length)

    def add(self, tracks: Tracks) -> None:
        """The next frame."""
        self._frames.append(dict(zip(tracks.track_id.tolist(), tracks.map_boxes[:, :3], strict=True)))

    def in_map(self, tracks: Tracks) -> list[Float64Array]:
        """(n, 3) places in metres of each track until now, oldest first."""
        return [
            np.array([frame[track] for frame in self._frames if track in frame], np.float64).reshape(-1, 3)
            for track in tracks.track_id.tolist()
        ]

    def from_above(self, tracks: Tracks) -> list[FloatArray]:
        """(n, 2) of the same in the frame of their sensor, as ``draw_bev`` takes them."""
        back = inverse(tracks.pose)
        return [
            (places @ back[:3, :3].T + back[:3, 3])[:, :2].astype(np.float32)
            for places in self.in_map(tracks)
        ]
