"""Boxes of a detector as memories in the map."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory.exchange.detections import DetectionOptions, is_detections, memories_from_frame
from memory.exchange.poses import Pose, Poses
from perception import Tracker
from perception.types import Detections

FRAME: dict[str, Any] = {
    "frame": "000001",
    "source": "scans/000001.bin",
    "timestamp_ns": 50,
    "boxes": [[10.0, 2.0, -1.0, 4.0, 1.6, 1.5, 0.3], [5.0, 0.0, -1.0, 0.8, 0.6, 1.7, 3.0]],
    "scores": [0.9, 0.4],
    "labels": ["Car", "Pedestrian"],
    "warnings": [],
    "elapsed_ms": 12.0,
}


def make_poses(*poses: Pose) -> Poses:
    return Poses(Path("poses.txt"), list(poses), None)


def turned(yaw: float, x: float, y: float, z: float) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:2, :2] = [[math.cos(yaw), -math.sin(yaw)], [math.sin(yaw), math.cos(yaw)]]
    matrix[:3, 3] = x, y, z
    return matrix


def test_what_perceive_writes() -> None:
    boxes = np.array([[10, 2, -1, 4, 1.6, 1.5, 0.3]], np.float32)
    found = Detections(boxes, np.array([0.75], np.float32), ["Car"], timestamp_ns=9, source="a.bin")
    record = {"frame": "a", **found.to_dict(), "elapsed_ms": 1.0}
    assert is_detections(record)
    (memory,) = memories_from_frame(record, 0, DetectionOptions())
    assert (memory.time_ns, memory.label, memory.confidence, memory.evidence) == (9, "Car", 0.75, "a.bin")
    assert memory.position == pytest.approx((10, 2, -1))


def test_without_poses_at_the_origin() -> None:
    car, walker = memories_from_frame(FRAME, 0, DetectionOptions(map_id="yard"))
    assert (car.label, car.kind, car.map_id, car.time_ns) == ("Car", "object", "yard", 50)
    assert car.position == (10.0, 2.0, -1.0)
    assert car.yaw == pytest.approx(0.3)
    assert car.confidence == 0.9
    assert car.payload == {"size_m": [4.0, 1.6, 1.5], "frame": "000001"}
    assert (car.evidence, car.provenance) == ("scans/000001.bin", "perceive")
    assert walker.label == "Pedestrian"


def test_in_the_map() -> None:
    """The corners of the box, moved by the pose, are the corners of the box of the memory."""
    pose = Pose(turned(2.0, 100.0, -50.0, 1.0), covariance=np.eye(3), map_id="city")
    options = DetectionOptions(poses=make_poses(Pose(), pose))
    for box, memory in zip(FRAME["boxes"], memories_from_frame(FRAME, 1, options), strict=True):
        x, y, z, length, width, height, yaw = box
        corners = np.array([[a, b, c, 1] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)]) * 0.5
        corners[:, 3] = 1
        corners[:, :3] *= (length, width, height)
        lidar = pose.map_from_lidar @ turned(yaw, x, y, z) @ corners.T
        mapped = turned(memory.yaw, *memory.position) @ corners.T
        np.testing.assert_allclose(mapped, lidar, atol=1e-9)
        assert memory.map_id == "city"
        np.testing.assert_array_equal(memory.covariance, np.eye(3))
        assert -math.pi < memory.yaw <= math.pi


def test_velocities_lie_along_the_axes_of_the_map() -> None:
    quarter = math.pi / 2
    own = {"pose": {"map_from_lidar": turned(quarter, 1.0, 2.0, 0.0)[:3].tolist()}}
    # Of a detector: along x and y of the LiDAR, which looks along y of the map.
    car, walker = memories_from_frame(FRAME | own | {"velocities": [[8.0, 1.0], None]}, 0, DetectionOptions())
    assert car.velocity == pytest.approx((-1.0, 8.0, 0.0))
    assert walker.velocity is None
    # Of tracks: already in the map that the pose leads to. They count before those of the detector.
    tracked = {"velocity": [[3.0, 4.0, 0.1], [0.0, 0.2, 0.0]], "velocities": [[8.0, 1.0], None]}
    car, walker = memories_from_frame(FRAME | own | tracked, 0, DetectionOptions())
    assert car.velocity == pytest.approx((3.0, 4.0, 0.1))
    assert (car.speed_m_s, car.moving, walker.moving) == (pytest.approx(5.0), True, False)
    # Other poses lead to another map, which is turned here.
    other = DetectionOptions(poses=make_poses(Pose(), Pose(turned(2 * quarter, 0.0, 0.0, 0.0))))
    assert memories_from_frame(FRAME | own | tracked, 0, other)[0].velocity == pytest.approx((-4.0, 3.0, 0.1))
    # Relative to a sensor that may move, nothing is known.
    for record in (FRAME | tracked, FRAME | {"velocities": [[8.0, 1.0], None]}, FRAME | own):
        assert [memory.velocity for memory in memories_from_frame(record, 0, DetectionOptions())] == [
            None
        ] * 2
    assert memories_from_frame(FRAME | {"velocity": tracked["velocity"]}, 0, other)[0].velocity is None


def test_what_the_tracker_writes_has_velocities() -> None:
    tracker, options = Tracker(), DetectionOptions()
    for at in range(12):
        pose = turned(0.7, 3.0 * at * 0.1, 0.0, 0.0)
        box = np.array([[10.0 + at, 2.0, -1.0, 4.0, 1.6, 1.5, 0.0]], np.float32)
        found = Detections(box, np.array([0.9], np.float32), ["Car"])
        tracks = tracker.update(found, pose=pose, time_ns=10**18 + at * 10**8)
    record = tracks.to_dict() | {"pose": {"map_from_lidar": pose[:3].tolist()}}
    (memory,) = memories_from_frame(record, 0, options)
    assert memory.velocity == pytest.approx(tracks.velocity[0].tolist(), abs=1e-4)
    ahead = turned(0.7, 0.0, 0.0, 0.0)[:2, 0] * 10.0 + (3.0, 0.0)
    assert memory.velocity[:2] == pytest.approx(ahead.tolist(), abs=0.5)


def test_scores_below_are_left_out() -> None:
    assert [m.label for m in memories_from_frame(FRAME, 0, DetectionOptions(min_score=0.5))] == ["Car"]
    assert memories_from_frame(FRAME, 0, DetectionOptions(min_score=0.95)) == []


def test_a_frame_says_itself_what_is_too_low() -> None:
    frame = {**FRAME, "least_scores": {"Pedestrian": 0.5}}
    assert [m.label for m in memories_from_frame(frame, 0, DetectionOptions())] == ["Car"]
    assert len(memories_from_frame(frame, 0, DetectionOptions(min_score=0.0))) == 2
    assert (
        memories_from_frame(
            {**FRAME, "least_scores": {"Car": 0.95, "Pedestrian": 0.5}}, 0, DetectionOptions()
        )
        == []
    )
    assert len(memories_from_frame({**FRAME, "least_scores": {}}, 0, DetectionOptions())) == 2
    for wrong, message in ((0.5, "must be an object of scores by class"), ({"Car": "high"}, "least_scores")):
        with pytest.raises((ValueError, TypeError), match=message):
            memories_from_frame({**FRAME, "least_scores": wrong}, 0, DetectionOptions())


def test_times() -> None:
    silent = FRAME | {"timestamp_ns": None}
    options = DetectionOptions(poses=make_poses(Pose(), Pose(time_ns=7)))
    assert memories_from_frame(FRAME, 1, options)[0].time_ns == 50
    assert memories_from_frame(silent, 1, options)[0].time_ns == 7
    counted = DetectionOptions(start_ns=1000, rate_hz=10.0)
    assert memories_from_frame(silent, 3, counted)[0].time_ns == 1000 + 300_000_000
    with pytest.raises(ValueError, match="no time"):
        memories_from_frame(silent, 0, DetectionOptions())
    empty = silent | {"boxes": [], "scores": [], "labels": []}
    assert memories_from_frame(empty, 0, DetectionOptions()) == []


def test_times_that_are_no_dates_are_counted_from_a_start() -> None:
    """Seconds since the start of a recording, which began on 3 March 2026 as far as its files say."""
    day_ns, start = 86_400 * 10**9, DetectionOptions(start_ns=10**18, rate_hz=10.0)
    assumed = {"assumed_ns": 1_772_496_000 * 10**9, "assumed_from": "file"}
    for own, counted_ns in ((None, 200_000_000), (50, 50), (day_ns, day_ns)):
        frame = FRAME | assumed | {"timestamp_ns": own}
        assert memories_from_frame(frame, 2, DetectionOptions())[0].time_ns == assumed["assumed_ns"]
        assert memories_from_frame(frame, 2, start)[0].time_ns == 10**18 + counted_ns
    date = FRAME | {"timestamp_ns": 1_500_000_000 * 10**9}
    assert memories_from_frame(date, 2, start)[0].time_ns == 1_500_000_000 * 10**9
    posed_frame = FRAME | {"timestamp_ns": None}
    relative = DetectionOptions(start_ns=10**18, poses=make_poses(Pose(), Pose(time_ns=7)))
    assert memories_from_frame(posed_frame, 0, relative)[0].time_ns == 10**18 + 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [0.5]}, "differ in length: 2, 1, 2"),
        ({"boxes": None}, "boxes must be a list, got None"),
        ({"boxes": [[1, 2, 3], [1, 2, 3]]}, r"boxes\[0\] must have 7 numbers, got 3"),
        ({"boxes": ["a", "b"]}, r"boxes\[0\] must be a list of seven numbers"),
        ({"scores": [1.5, 0.5]}, "confidence must be from 0 to 1"),
        ({"scores": ["a", 0.5]}, "scores must be 2 numbers"),
        ({"labels": ["Car", 3]}, r"labels\[1\] must be text"),
        ({"frame": 3}, "frame must be text"),
        ({"timestamp_ns": 1.5}, "timestamp_ns must be an integer"),
        ({"boxes": [[math.inf] * 7] * 2}, r"boxes\[0\] must be finite"),
        ({"velocity": [[1.0, 2.0, 3.0]]}, "velocity must be a list of 2 rows"),
        ({"velocities": [[1.0, 2.0, 3.0], None]}, r"velocities\[0\] must have 2 numbers, got 3"),
    ],
)
def test_bad_frames(change: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        memories_from_frame(FRAME | change, 0, DetectionOptions())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_score": 2.0}, "min_score must be from 0 to 1"),
        ({"start_ns": 0, "rate_hz": 0.0}, "rate_hz must be finite and above 0"),
        ({"rate_hz": 1.0}, "rate_hz needs start_ns"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DetectionOptions(**options)


def test_told_from_memories() -> None:
    assert is_detections(FRAME)
    assert not is_detections({"time_ns": 1, "label": "Car"})
