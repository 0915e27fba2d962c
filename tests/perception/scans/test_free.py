"""How far the view of a scan is free."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perception import PointCloud
from perception.scans.free import free_distances


def at(bearing_deg: float, distance_m: float, z: float) -> list[float]:
    bearing = math.radians(bearing_deg)
    return [distance_m * math.cos(bearing), distance_m * math.sin(bearing), z, 0.5]


def test_what_stands_stops_the_view_and_the_ground_does_not() -> None:
    rows = [
        at(0.5, 10, -1.73), at(0.5, 30, -1.73),  # ground
        at(10.5, 12, -0.8), at(10.5, 40, -1.73),  # a car before ground
        at(20.5, 15, 1.5), at(20.5, 22, -1.73),  # a branch over ground
        at(30.5, 1.2, -0.8), at(30.5, 18, -1.73),  # the vehicle itself
        at(-179.5, 5, -0.8), at(179.5, 6, -0.8),
        [math.nan, 0.0, 0.0, 0.0],
    ]  # fmt: skip
    free = free_distances(PointCloud(np.array(rows, np.float32)))
    assert free.dtype == np.float32
    assert free[180:211:10].tolist() == pytest.approx([30, 12, 22, 18])
    assert (free[0], free[359]) == (5, 6)
    assert free.sum() == pytest.approx(30 + 12 + 22 + 18 + 5 + 6)


def test_the_height_of_the_sensor_counts() -> None:
    rows = np.array([at(0.5, 10, -0.4), at(0.5, 20, -0.5)], np.float32)
    assert free_distances(PointCloud(rows))[180] == 10
    # 0.5 m above the ground: what is 0.4 m below the sensor lies on it.
    assert free_distances(PointCloud(rows, sensor_height_m=0.5))[180] == 20


def test_nothing_is_known_without_returns() -> None:
    assert not free_distances(PointCloud(np.zeros((0, 4), np.float32))).any()
    assert free_distances(PointCloud(np.zeros((0, 4), np.float32)), bins=7).shape == (7,)
