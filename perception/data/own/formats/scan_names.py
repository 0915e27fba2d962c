"""Frame names from scan names of tools."""

from __future__ import annotations

from pathlib import PurePosixPath

from perception.io.point_cloud import SUPPORTED_SUFFIXES


def frame_named(scan: str) -> str:
    """Return the frame of a scan: ``velodyne_points/data/0001.pcd`` and ``0001`` give ``0001``."""
    path = PurePosixPath(scan.replace("\\", "/"))
    return path.stem if path.suffix.lower() in SUPPORTED_SUFFIXES else path.name
