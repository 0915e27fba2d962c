"""Readers and writers of point clouds, recordings, poses and times."""

from perception.io.point_cloud import (
    SUPPORTED_SUFFIXES,
    find_point_clouds,
    load_point_cloud,
    save_point_cloud,
)

__all__ = ["SUPPORTED_SUFFIXES", "find_point_clouds", "load_point_cloud", "save_point_cloud"]
