"""Trails of tracked objects."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from perception.rigid_motion import inverse
from perception.track.tracks import Tracks
from perception.types import FloatArray

Float64Array = npt.NDArray[np.float64]
#: Frames of a trail.
LENGTH = 30


class Trails:
    """Positions of objects in the last frames, in the map.

    Args:
        length: number of frames.
    """

    def __init__(self, length: int = LENGTH) -> None:
        self._frames: deque[dict[int, FloatArray]] = deque(maxlen=length)

    def add(self, tracks: Tracks) -> None:
        """Add a frame."""
        self._frames.append(dict(zip(tracks.track_id.tolist(), tracks.map_boxes[:, :3], strict=True)))

    def in_map(self, tracks: Tracks) -> list[Float64Array]:
        """Return (n, 3) positions in metres of each track so far, oldest first."""
        return [
            np.array([frame[track] for frame in self._frames if track in frame], np.float64).reshape(-1, 3)
            for track in tracks.track_id.tolist()
        ]

    def from_above(self, tracks: Tracks) -> list[FloatArray]:
        """Return the same as (n, 2) positions in the tracks' sensor frame, for ``draw_bev``."""
        back = inverse(tracks.pose)
        return [
            (places @ back[:3, :3].T + back[:3, 3])[:, :2].astype(np.float32)
            for places in self.in_map(tracks)
        ]
