"""Readers and writers: one file per source, all of them behind ``load_point_cloud`` and ``kitti``."""

from perception.io.point_cloud import (
    SUPPORTED_SUFFIXES,
    find_point_clouds,
    load_point_cloud,
    save_point_cloud,
)

__all__ = ["SUPPORTED_SUFFIXES", "find_point_clouds", "load_point_cloud", "save_point_cloud"]
