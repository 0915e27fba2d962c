"""Limits per frame: how they grow with the covered area, and what is reported when a scan reaches one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perception import Detections, Detector
from perception.checkpoints.weights import load_weights
from perception.config import DetectorConfig
from perception.io import load_point_cloud
from perception.model.network import Network
from perception.train.data.frames import TrainingFrame
from perception.types import FloatArray

#: Ranges all around: of pointpillars-anywhere, and 153.6 m x 153.6 m.
RANGES = ((-56.32, -56.32, -3.0, 56.32, 56.32, 1.0), (-76.8, -76.8, -3.0, 76.8, 76.8, 1.0))
SURE = 0.3


@pytest.fixture(scope="module")
def ahead() -> Detector:
    return Detector.from_pretrained("pointpillars-kitti")


@pytest.fixture
def scan(kitti_directory: Path) -> FloatArray:
    """A scan with nine cars and a cyclist."""
    path = kitti_directory / "training" / "velodyne_reduced" / "000142.bin"
    if not path.is_file():
        pytest.skip("this KITTI folder lacks frame 000142")
    return load_point_cloud(path).points


def on_all_sides(points: FloatArray) -> FloatArray:
    """Return a scan of the camera's view four times: ahead, to the left, behind and to the right."""
    quarter = np.array([[0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], np.float32)
    return np.concatenate([points @ np.linalg.matrix_power(quarter, turns).T for turns in range(4)])


def sure(found: Detections) -> Detections:
    return found.filter(min_score=SURE)


@pytest.mark.parametrize("range_m", RANGES)
def test_all_limits_grow_with_the_area(range_m: tuple[float, ...]) -> None:
    config = load_weights("pointpillars-kitti").config
    area = (range_m[3] - range_m[0]) * (range_m[4] - range_m[1]) / (69.12 * 79.36)
    wide = config.with_range(range_m)
    assert wide.limits == tuple(math.ceil(most * area) for most in config.limits)
    assert wide.pillars.most_pillars == math.ceil(60_000 * area)
    assert config.pillars.most_pillars == 60_000
    assert config.with_range(None).pillars.most_pillars == 16 * 60_000


def test_a_scene_of_four_times_the_objects_loses_none(ahead: Detector, scan: FloatArray) -> None:
    """Limits of the larger range hold all objects; lower limits lose some, and say so."""
    wide = ahead.with_range((-69.12, -69.12, -3.0, 69.12, 69.12, 1.0))
    points = on_all_sides(scan)
    alone, found, more = wide(scan), wide(points), wide.with_limits(4)(points)
    assert found.limits_reached == more.limits_reached == ()
    # The weights never saw the rear, and find fewer objects there.
    assert len(sure(found)) > 2.5 * len(sure(alone)) > 20
    np.testing.assert_array_equal(sure(found).boxes, sure(more).boxes)
    few = wide.with_limits(0.1)(points)
    assert few.limits_reached == ("head.top_k", "refine.proposals")
    assert "limit of 35 peaks (head.top_k) and 18 proposals (refine.proposals)" in few.warnings[-1]
    assert len(sure(few)) < len(sure(found))


def test_reached_limits_are_part_of_a_record(ahead: Detector, scan: FloatArray) -> None:
    few = ahead.with_limits(0.08)(scan)
    assert few.limits_reached == ("head.top_k", "refine.proposals")
    record = json.loads(json.dumps(few.to_dict()))
    assert record["limits_reached"] == ["head.top_k", "refine.proposals"]
    assert Detections.from_dict(record).limits_reached == few.limits_reached
    assert few[few.scores > 0.5].limits_reached == few.limits_reached
    assert Detections.from_dict({"boxes": [], "scores": [], "labels": []}).limits_reached == ()


@pytest.mark.filterwarnings("ignore::sparse_core.errors.CapacityWarning")
def test_left_out_pillars_are_a_reached_limit(
    tiny_config: DetectorConfig, street: Callable[[int], TrainingFrame]
) -> None:
    small = replace(tiny_config, pillars=replace(tiny_config.pillars, max_pillars=300))
    detector = Detector(Network(small).eval())
    assert "pillars.max_pillars" in detector(street(0).points).limits_reached
    assert "pillars.max_pillars" not in detector.with_limits(50)(street(0).points).limits_reached
