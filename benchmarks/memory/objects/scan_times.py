"""Times of the points within a scan of DAIR-V2X's vehicle, whose sensor turns for a tenth of a second."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perception.boxes import points_in_boxes
from perception.data import open_data_set
from perception.io.files import pcd

#: Fewest points of an object whose time counts.
_LEAST_POINTS = 5


def scan_delay_s(side: Path) -> float:
    """Return the median time of the points of labelled objects after the time of their scan, in seconds.

    Args:
        side: folder ``vehicle-side``, whose scans have a field ``timestamp``.
    """
    delays = []
    for frame in open_data_set(side):
        if frame.source is None or frame.time_ns is None:
            continue
        points, times_s = _timed_points(frame.source)
        after_s = times_s - frame.time_ns / 1e9
        delays += [
            float(np.median(after_s[row]))
            for row in points_in_boxes(points, frame.boxes)
            if row.sum() > _LEAST_POINTS
        ]
    return round(float(np.median(delays)), 4)


def _timed_points(path: Path) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return (N, 3) points and (N,) seconds of a compressed file with a field ``timestamp``."""
    data = path.read_bytes()
    header = pcd._parse_header(path, data)
    fields = pcd._compressed_fields(path, header, memoryview(data)[header.data_offset :])
    return np.stack([fields[name] for name in "xyz"], axis=1), fields["timestamp"]
