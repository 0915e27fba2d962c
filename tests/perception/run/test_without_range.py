"""A detector without a range against one whose range holds all points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from perception import Detector
from perception.budget.selection import important_points
from perception.checkpoints.weights import load_weights, save_weights
from perception.config import DetectorConfig, TrainConfig, load_config, save_config
from perception.errors import ConfigError
from perception.model.level import Level
from perception.model.listed_map import ListedMap
from perception.model.network import Network
from perception.model.thinning import thinned
from perception.run.precision import Precision, has_bfloat16
from perception.train.data.frames import TrainingFrame
from perception.train.trainer import Trainer
from perception.types import Detections, FloatArray
from sparse_core.errors import CapacityWarning
from sparse_core.kernels import native

Street = Callable[[int], TrainingFrame]
pytestmark = pytest.mark.usefixtures("one_thread")

#: Holds the street with room for what its points reach, on both sides of the origin.
WIDE_M = (-30.72, -30.72, -3.0, 30.72, 30.72, 1.0)


@pytest.fixture(scope="module")
def wide() -> Detector:
    """Trained weights: those of random ones find objects in the border of an empty scene. No limit binds."""
    trained = Detector.from_pretrained("pointpillars-kitti")
    return trained.with_score_threshold(0.01).with_limits(20).with_range(WIDE_M)


def same(one: Detections, other: Detections) -> bool:
    return (
        one.boxes.tobytes() == other.boxes.tobytes()
        and one.scores.tobytes() == other.scores.tobytes()
        and list(one.labels) == list(other.labels)
    )


def two_sided(street: Street, seed: int) -> FloatArray:
    """Points before and behind the sensor."""
    behind = street(seed + 1).points * np.array([-1, 1, 1, 1], np.float32)
    return np.concatenate([street(seed).points, behind])


@pytest.mark.parametrize("seed", [0, 1])
def test_boxes_are_those_of_a_range_that_holds_all_points(wide: Detector, street: Street, seed: int) -> None:
    points = two_sided(street, seed)
    expected = wide(points)
    assert len(expected) > 3
    assert same(wide.with_range(None)(points), expected)


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_boxes_in_fewer_bits_are_those_of_a_range_too(street: Street, precision: Precision) -> None:
    if precision == "bfloat16" and not has_bfloat16():
        pytest.skip("this CPU has no products of bfloat16")
    if precision == "int8" and native.compiler() is None:
        pytest.skip("needs a C++ compiler")
    loaded = Detector.from_pretrained("pointpillars-kitti", precision=precision)
    wide = loaded.with_score_threshold(0.01).with_limits(20).with_range(WIDE_M)
    expected = wide(two_sided(street, 0))
    assert len(expected) > 3
    found = wide.with_range(None)(two_sided(street, 0))
    assert same(found, expected)


@pytest.mark.parametrize("blocks", [0, 1])
def test_necks_of_fewer_blocks(wide: Detector, street: Street, blocks: int) -> None:
    less = Detector(thinned(wide.network, Level("less", neck_blocks=blocks), wide.config))
    points = two_sided(street, 0)
    found = less.with_range(None)(points)
    assert len(found) > 0
    assert same(found, less(points))


def test_parts_down_to_a_point(wide: Detector, street: Street) -> None:
    opened = wide.with_range(None)
    points = two_sided(street, 0)
    for chosen in (points[:1], points[::500], points[1200:1350]):
        assert same(opened(chosen), wide(chosen))
    assert len(opened(points[:0])) == 0


def test_a_batch_and_the_order_of_points_change_no_bit(wide: Detector, street: Street) -> None:
    opened = wide.with_range(None)
    points = two_sided(street, 0)
    mixed = points[np.random.default_rng(0).permutation(len(points))]
    batch = opened.detect_batch([points, points[:0], mixed])
    assert same(batch[0], opened(points))
    assert len(batch[1]) == 0
    assert same(batch[2], batch[0])


def test_streets_kilometres_apart_are_computed_on_their_own(wide: Detector, street: Street) -> None:
    points = street(0).points
    opened = wide.with_range(None)
    far = points + np.array([-12_288.0, 16_384.0, 0, 0], np.float32)
    with torch.inference_mode():
        steps = opened._eager.steps
        alone, both = (
            steps.neck(steps._backbone(steps.encode(steps.locate([torch.from_numpy(scan)])))).features
            for scan in (points, np.concatenate([points, far]))
        )
    assert isinstance(alone, ListedMap)
    assert isinstance(both, ListedMap)
    assert len(both.cells) > 1.5 * len(alone.cells)
    torch.testing.assert_close(both.at(*alone.cells.unbind(1)), alone.values[:-4], rtol=0, atol=1e-4)


def test_points_too_far_away_are_left_out_and_reported(wide: Detector, street: Street) -> None:
    opened = wide.with_range(None)
    points = two_sided(street, 0)
    nan, inf = np.nan, np.inf
    far = np.array([[1e6, 0, 0, 0.5], [0, -3e38, 0, 0.5], [nan, 0, 0, 0.5], [0, inf, 0, 0.5]], np.float32)
    found = opened(np.concatenate([points, far]))
    assert same(found, opened(points))
    messages = " ".join(found.warnings)
    assert "2 points left out, because they are 20.8 km or more away" in messages
    assert "2 points with NaN or infinite values left out" in messages
    assert not any("out of the range" in text for text in opened(points).warnings)


def test_pillars_beyond_the_capacity_are_reported(tiny_config: DetectorConfig, street: Street) -> None:
    pillars = replace(tiny_config.pillars.with_range(None), max_pillars=50)
    opened = Detector(Network(replace(tiny_config, pillars=pillars)))
    with pytest.warns(CapacityWarning, match="pillars left out"):
        found = opened(street(0).points)
    assert any("pillars left out" in text for text in found.warnings)


def test_the_range_of_a_file_and_back(tiny_config: DetectorConfig, tmp_path: Path) -> None:
    opened = tiny_config.with_range(None)
    assert opened.pillars.origin_m == (0.0, -8.0)
    assert opened.pillars.z_range_m == (-3.0, 1.0)
    save_config(opened, tmp_path / "open.yaml")
    assert "range_m: null" in (tmp_path / "open.yaml").read_text()
    assert load_config(DetectorConfig, tmp_path / "open.yaml") == opened
    assert opened.with_range(tiny_config.pillars.range_m) == tiny_config
    save_weights(Network(opened), tmp_path / "open.safetensors")
    assert load_weights(tmp_path / "open.safetensors").config == opened


def test_thresholds_stay(wide: Detector) -> None:
    opened = wide.with_score_threshold({"Car": 0.7}).with_range(None)
    assert opened.config.nms.report_thresholds == {"Car": 0.7}
    assert opened.config.nms.score_threshold == wide.config.nms.score_threshold
    assert opened.with_range(None) is opened


def test_what_needs_whole_maps_says_so(
    tiny_config: DetectorConfig, tiny_network: Network, street: Street, tmp_path: Path
) -> None:
    opened = tiny_config.with_range(None)
    with pytest.raises(ConfigError, match=r"range_m must be six numbers"):
        replace(opened, backbone=replace(opened.backbone, kind="dense"))
    with pytest.raises(ConfigError, match=r"pillars\.range_m is null"):
        _ = opened.pillars.grid_shape
    with pytest.raises(ConfigError, match=r"training needs a bounded range"):
        Trainer(TrainConfig(detector=opened), tmp_path, [street(0)])
    detector = Detector(tiny_network).with_range(None)
    detector.network.head.heat.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="without a range"):
        detector(street(0).points)


def test_levels_without_a_range(tiny_network: Network) -> None:
    opened = Detector(tiny_network).with_range(None).network
    assert thinned(opened, Level("less", 1.0, refinements=1)).config.pillars == opened.config.pillars
    near = thinned(opened, Level("near", 1.0, reach_m=(5.0, 9.0))).config.pillars.range_m
    # Cells of 2 m, counted from 0, -8.
    assert near == (-6.0, -10.0, -3.0, 6.0, 10.0, 1.0)


def test_important_points_are_those_of_the_range(wide: Detector, street: Street) -> None:
    points = torch.from_numpy(two_sided(street, 0))
    opened = wide.with_range(None)
    chosen = important_points(points, opened.config.pillars, 0.4)
    assert 0 < len(chosen) < len(points)
    assert torch.equal(chosen, important_points(points, wide.config.pillars, 0.4))
