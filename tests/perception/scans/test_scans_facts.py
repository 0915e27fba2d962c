"""Measurements of a scan against plain numpy."""

from __future__ import annotations

import numpy as np
import pytest

from perception.io.raw import RawCloud
from perception.scans.facts import ScanFacts, measure_scan
from perception.types import FloatArray


def made(points: int, seed: int = 0) -> FloatArray:
    generator = np.random.default_rng(seed)
    return generator.normal([8.0, -3.0, -1.5], [20.0, 9.0, 1.0], (points, 3)).astype(np.float32)


def measured(xyz: FloatArray) -> ScanFacts:
    return measure_scan("scan", RawCloud(xyz, np.abs(xyz[:, 2]) / 8), count_repeated=False)


@pytest.mark.parametrize("points", [1, 2, 3, 100, 1024, 5000])
def test_percentiles_and_directions_are_those_of_numpy(points: int) -> None:
    xyz = made(points)
    facts, numbers = measured(xyz), xyz.astype(np.float64)
    expected = np.percentile(numbers, (0, 2, 50, 98, 100), axis=0)
    for mine, theirs in zip(
        (facts.smallest, facts.low, facts.median, facts.high, facts.largest), expected, strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    distance = np.hypot(numbers[:, 0], numbers[:, 1])
    assert facts.range_99 == pytest.approx(np.percentile(distance, 99), rel=1e-12)
    bearing = np.arctan2(numbers[:, 1], numbers[:, 0])
    mean = np.exp(1j * bearing).mean()
    assert facts.concentration == pytest.approx(abs(mean), rel=1e-9)
    assert facts.bearing_rad == pytest.approx(np.angle(mean), rel=1e-9)
    assert facts.intensity is not None
    assert facts.intensity[1] == pytest.approx(np.median(np.abs(numbers[:, 2]) / 8), rel=1e-6)


@pytest.mark.parametrize("points", [100, 1024, 5000])
def test_the_ground_is_the_fullest_bin_of_numpys_histogram(points: int) -> None:
    xyz = made(points)
    heights = xyz[np.hypot(xyz[:, 0], xyz[:, 1]) > 3.0, 2].astype(np.float64)
    low, high = np.percentile(heights, (1, 99))
    counts, edges = np.histogram(heights, bins=60, range=(low, high))
    fullest = counts.argmax()
    assert measured(xyz).layer == pytest.approx((edges[fullest] + edges[fullest + 1]) / 2, rel=1e-9)


def test_bad_rows_and_points_on_the_axis_are_counted() -> None:
    xyz = made(2000)
    xyz[::10, 1] = np.nan
    xyz[5, 0] = np.inf
    xyz[1::400] = 0
    facts = measured(xyz)
    assert facts.not_finite == 201
    assert facts.at_origin == 5
    assert facts.finite == 1799
    nowhere = measured(np.zeros((50, 3), np.float32))
    assert (nowhere.bearing_rad, nowhere.concentration, nowhere.layer) == (0.0, 1.0, 0.0)
    empty = measured(np.zeros((0, 3), np.float32))
    assert (empty.finite, empty.range_99, empty.layer, empty.concentration) == (0, 0.0, 0.0, 0.0)
    assert empty.median.tolist() == [0.0, 0.0, 0.0]


def test_numbers_at_the_end_of_float32_are_finite() -> None:
    largest = np.finfo(np.float32).max
    facts = measured(np.full((300, 3), largest, np.float32))
    assert facts.finite == 300
    assert facts.range_99 == pytest.approx(float(largest) * np.sqrt(2), rel=1e-6)
