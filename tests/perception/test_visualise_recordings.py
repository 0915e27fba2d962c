"""Recordings for Rerun and Foxglove, read back."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from perception.boxes import box_corners_3d
from perception.io.recordings.bag_poses import BagPoses
from perception.io.recordings.bag_scans import BagScans
from perception.io.recordings.bags import open_bag
from perception.io.recordings.wire import content, double, number, read_message, submessages
from perception.types import Boxes3D, Detections, PointCloud
from perception.visualise.recording import MOST_PLACES, Mark, PoseTrail, RecordingMoment
from perception.visualise.recordings import open_recordings

SECOND_NS = 10**9
START_NS = 1_700_000_000 * SECOND_NS + 123_456_789
BOX = np.array([[10.0, 2.0, -0.8, 4.0, 1.6, 1.5, 0.4]], np.float32)
MARKS = [
    Mark(1, "Car", "Car ×3", (1.0, 2.0, 0.5), (4.0, 1.8, 1.5), 0.3),
    Mark(2, "Car", "Car (gone)", (9.0, 2.0, 0.5), (4.0, 1.8, 1.5), 0.0, gone=True),
    Mark(3, "place", "street", (5.0, 6.0, 1.7)),
]


def pose(k: int) -> np.ndarray:
    made = np.eye(4)
    made[:3, :3] = Rotation.from_euler("z", 0.1 * k).as_matrix()
    made[:3, 3] = 2.0 * k, 0.5 * k, 1.7
    return made


def cloud(k: int) -> PointCloud:
    points = np.random.default_rng(k).uniform(0, 1, (30 + k, 4)).astype(np.float32)
    points[3, 0] = np.nan
    return PointCloud(points)


def record(tmp_path: Path, name: str = "a", *, timed: bool = True, posed: bool = True) -> tuple[Path, Path]:
    """Three scans with one box each, the second without; marks with the last."""
    rerun, mcap = tmp_path / f"{name}.rrd", tmp_path / f"{name}.mcap"
    with open_recordings(rerun=str(rerun), mcap=mcap, title="a test") as recordings:
        assert recordings
        for k in range(3):
            moment = RecordingMoment(k, START_NS + k * SECOND_NS if timed else None)
            found = Detections(BOX, np.array([0.876], np.float32), ["Car"], warnings=("3 points dropped",))
            if k == 1:
                found = Detections.empty()
            known = {"map_from_lidar": pose(k)} if posed else {}
            recordings.scan(cloud(k), found, moment, ground_truth=Boxes3D(BOX, ["Van"]), **known)
            recordings.numbers({"held": 10 + k}, moment)
        recordings.marks(MARKS, moment)
    return rerun, mcap


def rows_of(path: Path, entity: str) -> list[dict[str, Any]]:
    """Rows of an entity in a Rerun file, in the order of scans."""
    chunk = pytest.importorskip("rerun.chunk")
    rows: list[dict[str, Any]] = []
    for part in chunk.RrdReader(path).stream():
        if part.entity_path == entity:
            batch = part.to_record_batch()
            columns = {
                # Nanoseconds: more than a datetime can hold.
                name: (values.cast("int64") if name == "scan_time" else values).to_pylist()
                for name, values in zip(batch.schema.names, batch.columns, strict=True)
            }
            rows += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return sorted(rows, key=lambda row: row.get("scan", 0))


def messages_of(path: Path) -> dict[str, list[tuple[str, int, bytes]]]:
    """Type, time and bytes of the messages of each topic, by mcap's own reader."""
    reader = pytest.importorskip("mcap.reader")
    found: dict[str, list[tuple[str, int, bytes]]] = {}
    with path.open("rb") as stream:
        for schema, channel, message in reader.make_reader(stream, validate_crcs=True).iter_messages():
            found.setdefault(channel.topic, []).append((schema.name, message.log_time, message.data))
    return found


def test_rerun_holds_points_boxes_and_labels(tmp_path: Path) -> None:
    pytest.importorskip("foxglove")
    rerun, _ = record(tmp_path)
    rows = rows_of(rerun, "/map/robot/points")
    assert [row["scan"] for row in rows] == [0, 1, 2]
    for k, row in enumerate(rows):
        expected = np.delete(cloud(k).points[:, :3], 3, axis=0)
        np.testing.assert_array_equal(np.array(row["Points3D:positions"], np.float32), expected)
        # A timestamp, not a number: to the nanosecond.
        assert (
            int(np.datetime64(row["scan_time"], "ns").astype(np.int64)) // 1000
            == (START_NS + k * SECOND_NS) // 1000
        )
    first, second, _ = rows_of(rerun, "/map/robot/detections")
    assert first["Boxes3D:labels"] == ["Car 0.88"]
    assert not second["Boxes3D:half_sizes"]
    np.testing.assert_allclose(first["Boxes3D:centers"], BOX[:, :3])
    np.testing.assert_allclose(first["Boxes3D:half_sizes"], BOX[:, 3:6] / 2)
    turned = Rotation.from_quat(first["Boxes3D:quaternions"][0]).as_euler("xyz")
    np.testing.assert_allclose(turned, [0, 0, 0.4], atol=1e-6)
    assert rows_of(rerun, "/map/robot/ground_truth")[1]["Boxes3D:labels"] == ["Van"]
    assert {row["TextLog:text"][0] for row in rows_of(rerun, "/log")} == {"3 points dropped"}


def test_rerun_holds_the_way_the_marks_and_figures(tmp_path: Path) -> None:
    pytest.importorskip("foxglove")
    rerun, _ = record(tmp_path)
    transform = rows_of(rerun, "/map/robot")[2]
    np.testing.assert_allclose(transform["Transform3D:translation"][0], pose(2)[:3, 3])
    # Column by column.
    np.testing.assert_allclose(transform["Transform3D:mat3x3"][0], pose(2)[:3, :3].T.reshape(-1), atol=1e-6)
    line = rows_of(rerun, "/map/trajectory")[2]["LineStrips3D:strips"][0]
    np.testing.assert_allclose(line, [pose(k)[:3, 3] for k in range(3)])
    (things,) = rows_of(rerun, "/map/memories/things")
    assert things["Boxes3D:labels"] == ["Car ×3", "Car (gone)"]
    assert things["Boxes3D:colors"][0] != things["Boxes3D:colors"][1]
    (places,) = rows_of(rerun, "/map/memories/places")
    np.testing.assert_allclose(places["Points3D:positions"], [[5, 6, 1.7]], rtol=1e-6)
    assert [row["Scalars:scalars"] for row in rows_of(rerun, "/numbers/held")] == [[10], [11], [12]]


def test_scans_without_a_time_have_a_number_only(tmp_path: Path) -> None:
    pytest.importorskip("foxglove")
    rerun, mcap = record(tmp_path, timed=False, posed=False)
    rows = rows_of(rerun, "/map/robot/points")
    assert [row["scan"] for row in rows] == [0, 1, 2]
    assert all("scan_time" not in row for row in rows)
    assert not rows_of(rerun, "/map/trajectory")
    found = messages_of(mcap)
    assert [at for _, at, _ in found["/points"]] == [0, SECOND_NS // 10, 2 * SECOND_NS // 10]
    assert "/tf" not in found


def test_foxglove_holds_standard_schemas(tmp_path: Path) -> None:
    pytest.importorskip("rerun")
    _, mcap = record(tmp_path)
    found = messages_of(mcap)
    assert {topic: (messages[0][0], len(messages)) for topic, messages in found.items()} == {
        "/points": ("foxglove.PointCloud", 3),
        "/detections": ("foxglove.SceneUpdate", 3),
        "/ground_truth": ("foxglove.SceneUpdate", 3),
        "/tf": ("foxglove.FrameTransforms", 3),
        "/pose": ("foxglove.PoseInFrame", 3),
        "/trajectory": ("foxglove.PosesInFrame", 3),
        "/memories": ("foxglove.SceneUpdate", 1),
        "/numbers": ("Numbers", 3),
    }
    assert [at for _, at, _ in found["/points"]] == [START_NS + k * SECOND_NS for k in range(3)]
    assert json.loads(found["/numbers"][2][2]) == {"held": 12.0}
    assert len(submessages(read_message(found["/trajectory"][2][2]), 3)) == 3


def test_foxglove_boxes_are_cubes_with_texts(tmp_path: Path) -> None:
    """SceneUpdate 2: entities; SceneEntity 2: frame, 3: id, 8: cubes, 13: texts; a cube 1: pose, 2: size."""
    pytest.importorskip("rerun")
    _, mcap = record(tmp_path)
    found = messages_of(mcap)
    (entity,) = submessages(read_message(found["/detections"][0][2]), 2)
    assert (content(entity, 2), content(entity, 3)) == (b"lidar", b"detections")
    (cube,) = submessages(entity, 8)
    (placed,), (size,) = submessages(cube, 1), submessages(cube, 2)
    (at,), (turn,) = submessages(placed, 1), submessages(placed, 2)
    box = [*(double(at, k) for k in (1, 2, 3)), *(double(size, k) for k in (1, 2, 3))]
    yaw = 2 * np.arctan2(double(turn, 3), double(turn, 4))
    corners = box_corners_3d(np.array([[*box, yaw]]))
    np.testing.assert_allclose(corners, box_corners_3d(BOX.astype(np.float64)), atol=1e-6)
    (text,) = submessages(entity, 13)
    assert content(text, 6) == b"Car 0.88"
    # An empty scan replaces the entity of the one before by one without cubes.
    (empty,) = submessages(read_message(found["/detections"][1][2]), 2)
    assert content(empty, 3) == b"detections"
    assert not submessages(empty, 8)
    (memories,) = submessages(read_message(found["/memories"][0][2]), 2)
    assert (len(submessages(memories, 8)), len(submessages(memories, 9))) == (2, 1)
    assert number(submessages(entity, 1)[0], 1) == START_NS // SECOND_NS


def test_an_mcap_file_is_input_again(tmp_path: Path) -> None:
    pytest.importorskip("rerun")
    _, mcap = record(tmp_path)
    with open_bag(mcap) as bag:
        scans = list(BagScans(bag))
        poses = BagPoses(bag, sensor=scans[0].frame_id)
        moving = BagPoses(bag, "/tf", sensor=scans[0].frame_id)
    assert [scan.cloud.timestamp_ns for scan in scans] == [START_NS + k * SECOND_NS for k in range(3)]
    for k, scan in enumerate(scans):
        np.testing.assert_array_equal(scan.cloud.points, np.delete(cloud(k).points, 3, axis=0))
        for known in (poses, moving):
            here = known.at(START_NS + k * SECOND_NS)
            assert here is not None
            np.testing.assert_allclose(here, pose(k), atol=1e-9)


def test_the_same_scans_give_the_same_recording(tmp_path: Path) -> None:
    pytest.importorskip("rerun")
    (one, first), (other, second) = record(tmp_path, "a"), record(tmp_path, "b")
    assert first.read_bytes() == second.read_bytes()
    for entity in ("/map/robot/points", "/map/robot/detections", "/map/trajectory", "/numbers/held"):
        rows = [rows_of(path, entity) for path in (one, other)]
        # Rerun numbers its rows by the clock.
        for row in (*rows[0], *rows[1]):
            row.pop("rerun.controls.RowId")
        assert rows[0] == rows[1]


def test_a_long_way_is_thinned_and_ends_where_the_robot_is() -> None:
    trajectory = PoseTrail()
    for k in range(5 * MOST_PLACES):
        trajectory.add(pose(k), k)
        assert len(trajectory.poses) <= MOST_PLACES
    times = [at for at, _ in trajectory.poses]
    assert times == sorted(set(times))
    assert (times[0], times[-1]) == (0, 5 * MOST_PLACES - 1)
    assert np.diff(times[:-1]).max() <= 16


@pytest.mark.parametrize(("option", "name"), [("rerun", "a.txt"), ("mcap", "a.bag")])
def test_another_suffix_is_refused(tmp_path: Path, option: str, name: str) -> None:
    pytest.importorskip("rerun")
    pytest.importorskip("foxglove")
    path = tmp_path / name
    target = {option: str(path) if option == "rerun" else path}
    with pytest.raises(ValueError, match=f"{name}: choose a name that ends in"):
        open_recordings(title="a test", **target)
    assert not path.exists()


@pytest.mark.parametrize(
    ("option", "module"), [("rerun", "rerun"), ("mcap", "foxglove"), ("mcap", "mcap.writer")]
)
def test_without_the_library_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    path = tmp_path / {"rerun": "a.rrd", "mcap": "a.mcap"}[option]
    with pytest.raises(ImportError, match=rf"--{option} needs .*sparsight\[(?:rerun|foxglove)\]"):
        open_recordings(title="a test", **{option: str(path) if option == "rerun" else path})
