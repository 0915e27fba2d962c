"""Times of the points within a scan of DAIR-V2X's vehicle, whose sensor turns for a tenth of a second."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perception.boxes import points_in_boxes
from perception.data import open_data_set
from perception.io.files.lzf import decompress_lzf

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
        inside = np.asarray(points_in_boxes(points, np.asarray(frame.boxes, np.float32)))
        after_s = times_s - frame.time_ns / 1e9
        delays += [
            float(np.median(after_s[column]))
            for column in (inside if inside.shape[1] == len(points) else inside.T)
            if column.sum() > _LEAST_POINTS
        ]
    return round(float(np.median(delays)), 4)


def _timed_points(path: Path) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return (N, 3) points and (N,) seconds of a compressed file with x, y, z, intensity and timestamp."""
    data = path.read_bytes()
    head, _, body = data.partition(b"DATA binary_compressed\n")
    fields = dict(line.split(b" ", 1) for line in head.splitlines() if not line.startswith(b"#"))
    if fields[b"FIELDS"] != b"x y z intensity timestamp" or fields[b"SIZE"] != b"4 4 4 1 8":
        raise ValueError(f"{path}: expected the fields of the vehicle's scans, got {fields[b'FIELDS']!r}")
    count = int(fields[b"POINTS"])
    packed, size = struct.unpack("<II", body[:8])
    raw = decompress_lzf(body[8 : 8 + packed], size)
    points = np.frombuffer(raw, "<f4", 3 * count).reshape(3, count).T
    return np.ascontiguousarray(points), np.frombuffer(raw, "<f8", count, 13 * count)
