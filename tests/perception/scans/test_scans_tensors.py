"""Scans as networks see them: raised, shrunk and thinned; and the way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from perception import Detector, PointCloud
from perception.budget import BudgetedDetector
from perception.config import DetectorConfig, PillarConfig
from perception.errors import ConfigError
from perception.export.frame import ExportSteps
from perception.model.network import Network
from perception.scans.tensors import as_measured, as_tensor, measured_range_m
from perception.train.data.frames import TrainingFrame

Street = Callable[[int], TrainingFrame]
SHRINK = PillarConfig(shrink=4.0)


def test_a_shrunk_scene_has_its_ground_at_the_height_of_the_training_data() -> None:
    points = np.array([[40.0, -8.0, -1.73, 0.5], [4.0, 4.0, 2.27, 1.0]], np.float32)
    seen = as_tensor(points, SHRINK)
    np.testing.assert_allclose(seen, [[10, -2, -1.73, 0.5], [1, 1, -0.73, 1.0]], atol=1e-6)
    higher = PointCloud(points + np.float32([0, 0, -10, 0]), sensor_height_m=11.73)
    np.testing.assert_allclose(as_tensor(higher, SHRINK), seen, atol=1e-6)


def test_points_return_to_the_scan() -> None:
    cloud = PointCloud(np.random.default_rng(0).normal(0, 9, (50, 4)).astype(np.float32), sensor_height_m=3.0)
    for pillars in (SHRINK, PillarConfig()):
        back = as_measured(as_tensor(cloud, pillars), cloud, pillars.shrink)
        np.testing.assert_allclose(back, cloud.points, atol=1e-5)


def test_one_point_of_a_cube_stays() -> None:
    """The first one, in the order of the scan; points that are not finite are left to the detector."""
    points = np.array(
        [[1.1, 0.1, 0.1, 0.1], [np.nan, 0, 0, 0], [1.9, 0.9, 0.9, 0.2], [-0.1, 0.1, 0.1, 0.3],
         [0.1, 0.1, 0.1, 0.4], [1.0, 0.0, 0.0, 0.5], [np.inf, 0, 0, 0.6], [1e9, 1e9, -1e9, 0.7]],
        np.float32,
    )  # fmt: skip
    kept = as_tensor(points, PillarConfig(cube_m=1.0))
    assert kept[:, 3].tolist() == pytest.approx([0.1, 0.0, 0.3, 0.4, 0.6, 0.7])
    assert len(as_tensor(points, PillarConfig())) == len(points)
    assert len(as_tensor(points[:0], PillarConfig(cube_m=1.0))) == 0
    # Thinning happens in the shrunk scene.
    assert len(as_tensor(points[[0, 2, 3, 4]], PillarConfig(cube_m=1.0, shrink=10.0))) == 2


def shrunk(network: Network, config: DetectorConfig) -> Detector:
    """A detector of the same weights that sees scenes half as large."""
    made = Network(replace(config, pillars=replace(config.pillars, shrink=2.0)))
    made.load_state_dict(network.state_dict())
    return Detector(made.eval()).with_score_threshold(0.0)


def test_a_detector_reports_boxes_in_metres_of_the_scan(
    tiny_network: Network, tiny_config: DetectorConfig, street: Street
) -> None:
    """The same boxes in a scene of twice the size, twice as large."""
    torch.nn.init.zeros_(tiny_network.head.heat.bias)
    detector = shrunk(tiny_network, tiny_config)
    expected = Detector(tiny_network).with_score_threshold(0.0)(street(0).points)
    points = street(0).points * np.float32([2, 2, 2, 1]) + np.float32([0, 0, 1.73, 0])
    found = detector(points)
    assert len(found) == len(expected) > 0
    boxes = expected.boxes * np.float32([2, 2, 2, 2, 2, 2, 1]) + np.float32([0, 0, 1.73, 0, 0, 0, 0])
    np.testing.assert_allclose(found.boxes, boxes, atol=1e-2)
    assert [text for text in found.warnings if "reached its limit" not in text] == []
    budgeted = BudgetedDetector(detector, budget_s=10.0)
    for level in budgeted.levels:
        assert len(budgeted.at(level.name, points)) > 0


def test_ranges_are_given_in_metres_of_the_scan(tiny_network: Network, tiny_config: DetectorConfig) -> None:
    detector = shrunk(tiny_network, tiny_config)
    low, high = tiny_config.pillars.range_m[:3], tiny_config.pillars.range_m[3:]  # type: ignore[index]
    same = detector.with_range([2 * edge for edge in (*low, *high)])
    assert same.config.pillars.range_m == tiny_config.pillars.range_m


def test_shrunk_detectors_are_not_exported(tiny_network: Network, tiny_config: DetectorConfig) -> None:
    with pytest.raises(ConfigError, match=r"pillars\.shrink"):
        ExportSteps(shrunk(tiny_network, tiny_config).network)


def test_the_range_in_metres_of_a_scan() -> None:
    pillars = PillarConfig(range_m=(0.0, -8.0, -3.0, 16.0, 8.0, 1.0), shrink=4.0)
    low, high = measured_range_m(pillars)
    # Points at the edges are at the edges of the shrunk range.
    ends = np.column_stack([np.stack([low, high]), [0.0, 0.0]]).astype(np.float32)
    np.testing.assert_allclose(as_tensor(ends, pillars)[:, :3].flatten(), pillars.range_m, atol=1e-5)
    lower = measured_range_m(PillarConfig(), 1.0)[0]
    assert lower.tolist() == pytest.approx([0.0, -39.68, -3.0 + 0.73])
    assert np.isinf(measured_range_m(PillarConfig(range_m=None))[1][:2]).all()
