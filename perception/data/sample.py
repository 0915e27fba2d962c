"""Scans of the package: a few seconds of a simulated street, with poses and labels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.resources import as_file, files

import numpy as np

from perception.data.types import Frame
from perception.types import Boxes3D, PointCloud

#: Resolution of points (int16) and intensities.
STEP_M, INTENSITY_STEPS = 0.005, 255
#: Fewest points of a labelled object.
LEAST_POINTS = 15


@dataclass(frozen=True, eq=False, kw_only=True)
class SampleFrame(Frame):
    """A scan of the street in memory, with labels of the simulator (``known``)."""

    scan: PointCloud
    known: Boxes3D

    @cached_property
    def cloud(self) -> PointCloud:
        """The scan in the LiDAR frame."""
        return self.scan

    @cached_property
    def truth(self) -> Boxes3D:
        """Labels of objects with at least 15 points."""
        return self.known


def sample_frames() -> list[SampleFrame]:
    """Load scans of a moving robot's 64-beam sensor, every half second, 90 degrees wide.

    Returns:
        Frames with points, boxes (``Car``, ``Van``, ``Pedestrian``, ``Cyclist``), identities, pose
        (4, 4) float64 world_from_lidar in metres, and time.
    """
    with as_file(files("perception") / "assets" / "street.npz") as path, np.load(path) as stored:
        held = dict(stored)
    points = np.concatenate(
        [held["steps"] * np.float32(STEP_M), held["intensity"][:, None] / np.float32(INTENSITY_STEPS)], axis=1
    )
    found = []
    for row, time_ns in enumerate(held["time_ns"].tolist()):
        scan = slice(*held["point_ends"][row : row + 2])
        marked = slice(*held["box_ends"][row : row + 2])
        found.append(
            SampleFrame(
                frame_id=f"{row:06d}",
                source=None,
                labelled=True,
                track_ids=held["track_id"][marked],
                pose=held["pose"][row],
                time_ns=time_ns,
                scan=PointCloud(points[scan].copy(), timestamp_ns=time_ns, source=f"sample frame {row}"),
                known=Boxes3D(held["box"][marked], held["label"][marked].tolist()),
            )
        )
    return found
