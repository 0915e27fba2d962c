from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from nuscenes_folder import MOUNT, MOUNT_AT, SCENES, ego, moving, parked, sensor_points, write_nuscenes
from scipy.spatial.transform import Rotation

from perception.data import frame_beside, open_data_set
from perception.data.nuscenes import NuScenesDataSet, NuScenesFrame
from perception.errors import DataError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_nuscenes(tmp_path / "nuscenes")


def frames(root: Path, **options: int) -> list[NuScenesFrame]:
    found = [frame for frame in open_data_set(root, **options) if isinstance(frame, NuScenesFrame)]
    assert len(found) == 6
    return found


def test_points_and_boxes_are_level_at_the_sensor(root: Path) -> None:
    data_set = open_data_set(root)
    assert isinstance(data_set, NuScenesDataSet)
    assert (data_set.kind, data_set.evaluation) == ("nuScenes", "nuscenes")
    for number, frame in enumerate(frames(root)):
        scene, key = divmod(number, 3)
        turn, place = ego(scene, 3 * key)
        rows = sensor_points(scene, 3 * key)
        np.testing.assert_allclose(frame.points[:, :3], MOUNT.apply(rows[:, :3]), atol=1e-4)
        np.testing.assert_array_equal(frame.points[:, 3], rows[:, 3] / np.float32(255))
        assert frame.pose is not None
        np.testing.assert_allclose(frame.pose[:3, 3], place + turn.apply(MOUNT_AT))
        np.testing.assert_allclose(frame.pose[:3, :3], turn.as_matrix())
        assert frame.sensor_height_m == pytest.approx(1.84)
        assert frame.cloud.sensor_height_m == pytest.approx(1.84)
        assert frame.labels == ["car", "bicycle"]
        world = frame.boxes[:, :3] @ frame.pose[:3, :3].T + frame.pose[:3, 3]
        np.testing.assert_allclose(world, [parked(scene), moving(scene, key)], atol=1e-4)
        np.testing.assert_allclose(frame.boxes[:, 3:6], [[4.4, 1.8, 1.6]] * 2, atol=1e-6)
        heading = turn.as_euler("zyx")[0]
        np.testing.assert_allclose(frame.boxes[:, 6], [0.3 - heading, 1.5 - heading], atol=1e-5)
        # The parked car's centre is a point of every scan.
        np.testing.assert_allclose(frame.points[0, :3], frame.boxes[0, :3], atol=1e-4)
        assert frame.velocities is not None
        over_ground = Rotation.from_matrix(frame.pose[:3, :3]).apply(
            np.pad(frame.velocities, [(0, 0), (0, 1)])
        )
        np.testing.assert_allclose(over_ground[:, :2], [[0, 0], [0, 4]], atol=1e-3)
        assert frame.attributes == ("vehicle.parked", "cycle.with_rider")
        assert frame.point_counts.tolist() == [1, 0]
        assert frame.track_ids is not None
        assert frame.track_ids.tolist() == [3 * scene, 3 * scene + 1]
        assert frame.time_ns == int(frame.frame_id.rpartition("__")[2]) * 1000


def test_the_camera_sees_what_the_tables_say(root: Path) -> None:
    for frame in frames(root):
        centre = frame.calibration.camera_from_lidar @ [*frame.boxes[0, :3], 1.0]
        pixel = frame.calibration.image_from_camera @ centre
        ahead = centre[2]
        assert ahead == pytest.approx(frame.boxes[0, 0] + MOUNT_AT[0] - 1.7, abs=1e-3)
        assert pixel[0] / pixel[2] == pytest.approx(800 - 1000 * frame.boxes[0, 1] / ahead, abs=0.1)


def test_sweeps_are_moved_into_the_frame(root: Path) -> None:
    whole = frames(root, sweeps=2)
    assert [len(frame.parts) for frame in whole] == [1, 3, 3] * 2
    for frame, alone in zip(whole, frames(root), strict=True):
        ages = frame.cloud.ages_s
        assert sorted(set(ages.tolist())) == pytest.approx([0, 0.05, 0.1][: len(frame.parts)])
        np.testing.assert_array_equal(frame.points[ages == 0], alone.points)
        # The parked car stays where it is, whoever saw it.
        firsts = frame.points[:: len(alone.points), :3]
        np.testing.assert_allclose(firsts, [frame.boxes[0, :3]] * len(frame.parts), atol=1e-4)
    (root / "sweeps/LIDAR_TOP").rename(root / "gone")
    assert [len(frame.parts) for frame in frames(root, sweeps=2)] == [1] * 6


def test_sweeps_where_there_are_none(kitti_folder: Path) -> None:
    with pytest.raises(DataError, match="has no sweeps"):
        open_data_set(kitti_folder, sweeps=3)


def test_splits(root: Path) -> None:
    data_set = open_data_set(root)
    assert data_set.splits == ["mini_train", "mini_val", "train", "val", *SCENES]
    for split, scene in (("mini_train", 0), ("train", 0), ("scene-0103", 1), ("mini_val", 1), ("val", 1)):
        assert open_data_set(root, split).frame_ids == data_set.frame_ids[3 * scene :][:3]
    (root / "v1.0-mini/splits.json").write_text(json.dumps({"mine": ["scene-0061", "scene-9999"]}))
    other = root.parent / "other"
    root.rename(other)
    assert len(open_data_set(other, "mine")) == 3
    with pytest.raises(DataError, match="no split 'test'"):
        open_data_set(other, "test")


def test_the_frame_beside_a_scan(root: Path) -> None:
    frame = frames(root)[4]
    assert frame.source is not None
    beside = frame_beside(frame.source)
    assert isinstance(beside, NuScenesFrame)
    assert (beside.frame_id, beside.sample_token) == (frame.frame_id, "k1-1")
    sweep = next((root / "sweeps/LIDAR_TOP").iterdir())
    assert frame_beside(sweep) is None


def test_only_scans_that_are_there(root: Path) -> None:
    frame = frames(root)[2]
    assert frame.source is not None
    frame.source.unlink()
    assert frame.frame_id not in open_data_set(root).frame_ids
    assert len(open_data_set(root)) == 5
    assert len(open_data_set(root, having="labels")) == 6


def test_a_frame_travels_to_a_worker(root: Path) -> None:
    sent = pickle.dumps(open_data_set(root)[1])
    assert len(sent) < 10_000
    np.testing.assert_array_equal(pickle.loads(sent).points, frames(root)[1].points)


def spoil(root: Path, table: str, row: int, **values: object) -> None:
    path = root / f"v1.0-mini/{table}.json"
    records = json.loads(path.read_text())
    for name, value in values.items():
        if value is None:
            del records[row][name]
        else:
            records[row][name] = value
    path.write_text(json.dumps(records))


@pytest.mark.parametrize(
    ("table", "values", "message"),
    [
        ("sample_annotation", {"sample_token": "?"}, r"sample_annotation\.json: l0-0-car"),
        (
            "sample_annotation",
            {"instance_token": "?"},
            r"instance '\?', which instance\.json does not have",
        ),
        ("sample_annotation", {"size": None}, r"sample_annotation\.json: record 0 has no 'size'"),
        ("ego_pose", {"rotation": [0, 0, 0, 0]}, r"ego_pose\.json: d0-0"),
        ("ego_pose", {"translation": [float("nan"), 0, 0]}, r"ego_pose\.json: d0-0: .* not finite"),
        ("ego_pose", {"token": "?"}, r"ego_pose\.json: no record 'd0-0', which d0-0"),
    ],
)
def test_damaged_tables_are_named(root: Path, table: str, values: dict[str, object], message: str) -> None:
    spoil(root, table, 0, **values)
    with pytest.raises(DataError, match=message):
        list(open_data_set(root))


def test_files_that_are_no_tables(root: Path) -> None:
    (root / "v1.0-mini/category.json").write_text("{")
    with pytest.raises(DataError, match=r"category\.json: not"):
        list(open_data_set(root))
    (root / "v1.0-trainval").mkdir()
    (root / "v1.0-trainval/sample.json").write_text("[]")
    with pytest.raises(DataError, match=r"v1\.0-mini, v1\.0-trainval"):
        open_data_set(root)


def test_the_real_scene(data_directory: Path) -> None:
    data_set = open_data_set(data_directory / "nuscenes", "scene-0523")
    assert len(data_set) == 40
    places: dict[int, list[np.ndarray]] = {}
    inside = told = 0
    for frame in data_set:
        assert isinstance(frame, NuScenesFrame)
        assert frame.pose is not None
        assert frame.track_ids is not None
        world = frame.boxes[:, :3] @ frame.pose[:3, :3].T + frame.pose[:3, 3]
        for track, centre, attribute in zip(frame.track_ids, world, frame.attributes, strict=True):
            if attribute == "vehicle.parked":
                places.setdefault(int(track), []).append(centre)
        inside += sum(count_inside(frame.points[:, :3], box) for box in frame.boxes)
        told += int(frame.point_counts.sum())
    spread = [np.std(seen, axis=0).max() for seen in places.values() if len(seen) > 5]
    assert len(spread) > 10
    assert np.median(spread) < 0.15
    # The tables count a little more: radar, and boxes that are a finger wider.
    assert 0.97 < inside / told < 1.0


def count_inside(points: np.ndarray, box: np.ndarray) -> int:
    away = points - box[:3]
    along = away[:, 0] * np.cos(box[6]) + away[:, 1] * np.sin(box[6])
    across = away[:, 1] * np.cos(box[6]) - away[:, 0] * np.sin(box[6])
    return int((np.abs(np.stack([along, across, away[:, 2]])) <= box[3:6, None] / 2).all(axis=0).sum())


def test_the_real_scene_as_the_development_kit_reads_it(data_directory: Path) -> None:
    kit = pytest.importorskip("nuscenes.nuscenes", reason="nuscenes-devkit is not installed")
    from nuscenes.eval.common.utils import Quaternion
    from nuscenes.utils.data_classes import LidarPointCloud

    folder = data_directory / "nuscenes"
    theirs = kit.NuScenes("v1.0-mini", str(folder), verbose=False)
    for frame in open_data_set(folder):
        assert isinstance(frame, NuScenesFrame)
        assert frame.pose is not None
        sample = theirs.get("sample", frame.sample_token)
        data = theirs.get("sample_data", sample["data"]["LIDAR_TOP"])
        mount = theirs.get("calibrated_sensor", data["calibrated_sensor_token"])
        place = theirs.get("ego_pose", data["ego_pose_token"])
        cloud = LidarPointCloud.from_file(str(folder / data["filename"]))
        for turn in (mount, place):
            cloud.rotate(Quaternion(turn["rotation"]).rotation_matrix)
            cloud.translate(np.array(turn["translation"]))
        ours = frame.points[:, :3] @ frame.pose[:3, :3].T + frame.pose[:3, 3]
        np.testing.assert_allclose(ours, cloud.points[:3].T, atol=2e-3)
        tokens = [
            token
            for token in sample["anns"]
            if theirs.get("sample_annotation", token)["category_name"] in KNOWN
        ]
        assert len(tokens) == len(frame.truth)
        for row, token in enumerate(tokens):
            box = theirs.get_box(token)
            np.testing.assert_allclose(
                frame.pose[:3, :3] @ frame.boxes[row, :3] + frame.pose[:3, 3], box.center, atol=1e-4
            )
            np.testing.assert_allclose(frame.boxes[row, [4, 3, 5]], box.wlh, atol=1e-5)
            velocity = theirs.box_velocity(token)
            turned = frame.pose[:2, :2] @ np.asarray(frame.velocities)[row]
            # Its upward part is seen along the axes of a vehicle that is not quite level.
            np.testing.assert_allclose(turned, velocity[:2], atol=5e-2)


KNOWN = {
    "vehicle.car", "vehicle.truck", "vehicle.bus.bendy", "vehicle.bus.rigid", "vehicle.trailer",
    "vehicle.construction", "human.pedestrian.adult", "human.pedestrian.child",
    "human.pedestrian.construction_worker", "human.pedestrian.police_officer", "vehicle.motorcycle",
    "vehicle.bicycle", "movable_object.trafficcone", "movable_object.barrier",
}  # fmt: skip
