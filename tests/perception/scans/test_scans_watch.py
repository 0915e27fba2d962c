"""What is said of scans, of which, and how often."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from perception import Detector, PointCloud
from perception.budget import BudgetedDetector
from perception.config import PillarConfig
from perception.errors import ScanWarning
from perception.io import load_point_cloud
from perception.model.network import Network
from perception.scans import ScanTransform
from perception.scans.watch import ScanWatch
from perception.train.data.frames import TrainingFrame

Street = Callable[[int], TrainingFrame]
RANGE = PillarConfig(range_m=(0, -8, -3, 16, 8, 1), pillar_size_m=0.25, channels=16)


def said(points: Any) -> list[str]:
    return ScanWatch(RANGE, every_frame=True).check(points)


def test_the_first_of_each_kind_is_a_python_warning(tiny_network: Network, street: Street) -> None:
    """A scan in millimetres gave no box and no word to whoever did not ask for ``warnings``."""
    detector, points = Detector(tiny_network), street(0).points
    millimetres = points * np.float32([1000, 1000, 1000, 1])
    with pytest.warns(
        ScanWarning, match=r"seem to be in millimetres.*ScanTransform\(scale=0\.001\)"
    ) as caught:
        assert detector(millimetres).warnings
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", ScanWarning)
        assert detector(millimetres * np.float32(1.1)).warnings
        assert detector.with_score_threshold(0.5)(millimetres).warnings
        assert Detector(tiny_network)(points).warnings == ()
    with pytest.warns(ScanWarning, match="intensity spans"):
        detector(points * np.float32([1, 1, 1, 255]))
    with pytest.warns(ScanWarning, match="millimetres"):
        Detector(tiny_network)(millimetres)


def test_no_point_within_the_range_is_said_of_scans_that_nobody_looks_at(street: Street) -> None:
    """Of scans on a GPU, and of those between the hundredth ones, the number of pillars is known."""
    watch, points = ScanWatch(RANGE, every_frame=False), street(0).points
    for _ in range(10):
        assert watch.with_pillars(watch.check(points), points, 7) == []
    far = points + np.float32([100, 0, 0, 0])
    (said,) = watch.with_pillars(watch.check(far), far, 0)
    assert "no point is within the range of these weights (x 0 to 16 m" in said
    assert "ScanTransform(scale=0.001)" in said
    assert watch.with_pillars(watch.check(far[:50]), far[:50], 0) == []


def test_nothing_is_said_of_a_sound_scan(street: Street) -> None:
    points = street(0).points
    assert said(points) == said(PointCloud(points)) == said(torch.from_numpy(points)) == []
    assert said(points.astype(np.float64)) == said(torch.from_numpy(points).double().requires_grad_()) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p: p * np.float32([1000, 1000, 1000, 1]), "ScanTransform(scale=0.001)"),
        (lambda p: p * np.float32([100, 100, 100, 1]), "--scale 0.01"),
        (lambda p: p * np.float32([1, -1, -1, 1]), "ScanTransform(axes='x,-y,-z')"),
        (lambda p: p[:, [1, 2, 0, 3]] * np.float32([-1, -1, 1, 1]), "--axes z,-x,-y"),
        (lambda p: p * np.float32([-1, -1, 1, 1]), "--axes=-x,-y,z"),
        (lambda p: p[:, [0, 2, 1, 3]] * np.float32([1, 1, -1, 1]), "--axes x,-z,y"),
        (lambda p: p[:, [1, 0, 2, 3]] * np.float32([-1, 1, 1, 1]), "--axes y,-x,z"),
        (lambda p: p[:, [1, 0, 2, 3]] * np.float32([1, -1, 1, 1]), "--axes=-y,x,z"),
        (lambda p: p + np.float32([0, 0, 1.73, 0]), "--sensor-height "),
        (lambda p: p - np.float32([0, 0, 1.27, 0]), "--sensor-height 2.9"),
        (lambda p: p + np.float32([9000, 400, 0, 0]), "map coordinates"),
        (lambda p: p * np.float32([0.01, 0.01, 0.01, 1]), "normalized"),
        (lambda p: p * np.float32([1, 1, 1, 255]), "ScanTransform(intensity_scale=255.0)"),
        (lambda p: p * np.float32([1, 1, 1, 40000]), "--intensity-scale 65535"),
        (lambda p: p * np.float32([1, 1, 1, 0.001]), "more than half of the intensities are close to 0"),
        (lambda p: np.maximum(p, np.float32([-99, -99, -9, 0.996])), "are close to 1 (median 1)"),
        (lambda p: p - np.float32([0, 0, 0, 2]), "expected 0 to 1"),
        (lambda p: p * np.float32([1, 1, 1, 0]), "intensity is zero or missing"),
        (lambda p: p[:0], "the scan is empty"),
        (lambda p: p * np.float32(np.nan), "no finite point"),
        (lambda p: np.concatenate([p, p - np.float32([30, 0, 0, 0])]), "50% of the points are out of"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [np.array, PointCloud, torch.from_numpy])
def test_each_fault_is_named(street: Street, change: Any, words: str, kind: Any) -> None:
    # Nothing but the ground shows the height of the sensor: one axis of a small street says little of it.
    (message,) = said(kind(change(street(0).points)))
    assert words in message


def test_points_of_a_described_rig_may_all_lie_behind(street: Street) -> None:
    """A rear sensor alone looks backward; its mounting is known, so its axes are not in doubt."""
    behind = street(0).points * np.float32([-1, -1, 1, 1])
    assert any("x does not point forward" in text for text in said(PointCloud(behind)))
    assert not any("point forward" in text for text in said(PointCloud(behind, frame="rig")))
    (upside_down,) = said(PointCloud(behind * np.float32([1, -1, -1, 1]), frame="rig"))
    assert "z seems to point down" in upside_down


def test_what_is_advised_mends_it(street: Street) -> None:
    spoilt = 1000 * (street(0).points + np.float32([0, 0, 1.73, 0]))[:, [1, 2, 0, 3]]
    messages = said(spoilt * np.float32([-1, -1, 1, 0.2]))
    assert len(messages) == 4
    made = ScanTransform()
    for message in messages:
        expression = message[message.index("ScanTransform(") : message.index(".apply")]
        made = made.then(eval(expression))
    assert said(made.apply(spoilt * np.float32([-1, -1, 1, 0.2]))) == []


def test_feet_are_named_besides_a_high_sensor(street: Street) -> None:
    feet = street(0).points / np.float32([0.3048, 0.3048, 0.3048, 1])
    assert any("in feet: --scale 0.3048" in text for text in said(feet))
    assert not any("feet" in text for text in said(street(0).points - np.float32([0, 0, 1.27, 0])))


def test_a_scan_upside_down_with_reflections_below_the_ground(street: Street) -> None:
    points = street(0).points * np.float32([1, -1, -1, 1])
    rng = np.random.default_rng(0)
    below = rng.uniform([5, -3, 2.5, 0], [15, 3, 3.2, 1], (len(points) // 20, 4)).astype(np.float32)
    assert any("--axes x,-y,-z" in text for text in said(np.concatenate([points, below])))


def test_points_on_a_line_or_in_one_place_show_no_axes() -> None:
    line = np.zeros((1000, 4), np.float32)
    line[:, 0], line[:, 2], line[:, 3] = np.linspace(1, 15, 1000), -1.7, 0.5
    assert said(line) == said(np.tile(np.float32([[5, 0, -1.7, 0.5]]), (5000, 1))) == []


def test_signalling_numbers_and_flat_scans_make_no_warning_of_numpys() -> None:
    points = np.random.default_rng(0).uniform(-50, 50, (500, 4)).astype(np.float32)
    points.view(np.uint32)[::7, 2] = 0x7F800001
    said(points)
    said(np.tile(np.float32([[3, 4, 1e6, 0.5]]), (500, 1)))
    said(np.full((500, 4), np.finfo(np.float32).max))


def test_few_points_show_nothing(street: Street) -> None:
    points = street(0).points[:50] * np.float32([1000, 1000, 1000, 1])
    assert said(points) == []
    assert said(np.ones((1, 4), np.float32)) == []


def test_one_finite_point_among_many_is_found() -> None:
    points = np.full((100_000, 4), np.nan, np.float32)
    points[77_777] = 1.0
    assert said(points) == []


def test_out_of_range_is_said_once_and_the_rest_each_time(street: Street) -> None:
    watch = ScanWatch(RANGE, every_frame=True)
    points = np.concatenate([street(0).points, street(0).points - np.float32([30, 0, 0, 0])])
    assert len(watch.check(points)) == 1
    assert watch.check(points) == []
    dark = points * np.float32([1, 1, 1, 0])
    assert len(watch.check(dark)) == len(watch.check(dark)) == 1


def test_runs_that_nobody_sees_are_not_counted(tiny_network: Network, street: Street) -> None:
    points = np.concatenate([street(0).points, street(0).points - np.float32([30, 0, 0, 0])])
    detector = Detector(tiny_network)
    detector.warmup(points)
    detector.profile(points, repeats=1)
    assert "out of the range" in detector(points).warnings[0]
    assert detector(points).warnings == ()
    # Another threshold is another detector, with a user of its own.
    assert len(detector.with_score_threshold(0.5)(points).warnings) == 1


def test_quick_frames_are_looked_at_now_and_then(street: Street) -> None:
    watch = ScanWatch(RANGE, every_frame=False)
    dark = PointCloud(street(0).points * np.float32([1, 1, 1, 0]), warnings=("as read",))
    heard = [number for number in range(1, 301) if len(watch.check(dark)) == 2]
    assert heard == [*range(1, 11), 100, 200, 300]
    assert watch.check(dark) == ["as read"]


def test_a_ground_under_a_roof_is_the_ground(street: Street) -> None:
    """Returns of the vehicle's own roof, as nuScenes has them, are not taken for the ground."""
    roof = np.random.default_rng(0).uniform([-1, -1, -0.05, 0.1], [1, 1, 0.05, 0.2], (900, 4))
    assert said(np.concatenate([street(0).points, roof.astype(np.float32)])) == []


def test_boxes_are_told_from_the_sensors_own_height(tiny_network: Network, street: Street) -> None:
    torch.nn.init.zeros_(tiny_network.head.heat.bias)
    detector = Detector(tiny_network).with_score_threshold(0.0)
    points = street(0).points
    lifted = ScanTransform(sensor_height_m=0.0).apply(points + np.float32([0, 0, 1.73, 0]))
    expected, found = detector(points), detector(lifted)
    assert len(found) == len(expected) > 0
    assert [text for text in found.warnings if "reached its limit" not in text] == []
    np.testing.assert_allclose(
        found.boxes - expected.boxes, np.float32([[0, 0, 1.73, 0, 0, 0, 0]] * len(found)), atol=1e-3
    )
    budgeted = BudgetedDetector(detector, budget_s=10.0)
    for level in budgeted.levels:
        np.testing.assert_allclose(
            budgeted.at(level.name, lifted).boxes[:, 2],
            budgeted.at(level.name, points).boxes[:, 2] + 1.73,
            atol=1e-2,
        )


def test_a_budgeted_detector_passes_on_what_is_said(tiny_network: Network, street: Street) -> None:
    budgeted = BudgetedDetector(Detector(tiny_network), budget_s=10.0)
    points = np.concatenate([street(0).points, street(0).points - np.float32([30, 0, 0, 0])])
    assert "out of the range" in budgeted(points).warnings[0]
    assert budgeted(points).warnings == ()


def test_batches_and_streams_are_looked_at(tiny_network: Network, street: Street) -> None:
    detector = Detector(tiny_network)
    bright = street(0).points * np.float32([1, 1, 1, 255])
    found = detector.detect_batch([street(1).points, bright])
    assert [len(one.warnings) for one in found] == [0, 1]
    assert [len(one.warnings) for one in detector.stream([bright, street(1).points])] == [1, 0]


@pytest.mark.slow
def test_nothing_is_said_of_real_scans(data_directory: Path) -> None:
    for path in sorted((data_directory / "kitti/training/velodyne_reduced").glob("*.bin")):
        assert ScanWatch(PillarConfig(), every_frame=True).check(load_point_cloud(path)) == [], path.name
    for path in sorted((data_directory / "nuscenes/samples/LIDAR_TOP").glob("*.bin")):
        (message,) = ScanWatch(PillarConfig(), every_frame=True).check(
            load_point_cloud(path, transform=ScanTransform(axes="y,-x,z"))
        )
        assert "out of the range" in message
    full = sorted((data_directory / "kitti/training/velodyne").glob("*.bin"))
    assert full
    for path in full:
        (message,) = ScanWatch(PillarConfig(), every_frame=True).check(load_point_cloud(path))
        assert "out of the range" in message
