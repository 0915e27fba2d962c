"""DAIR-V2X: both sides, pairs, and the pitfalls of its files, on files of the test and on real ones."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dair_folder import (
    CAR,
    CAR_OF_POST,
    ROADSIDE_AT,
    ROADSIDE_YAW_RAD,
    VAN_BESIDE,
    VEHICLE_AT,
    VEHICLE_YAW_RAD,
    dair_folder,
    matrix,
)

from perception.boxes import points_in_boxes, wrap_angle
from perception.cli import main
from perception.config import TrainConfig, load_config
from perception.data import frame_beside, open_data_set
from perception.data.dair_v2x import DairV2xPairs, DairV2xSide, PairFrame
from perception.data.own.formats import recognised_format
from perception.data.own.formats.dair_v2x import DairV2xLabels
from perception.doctor import examine_data_set
from perception.errors import DataError
from perception.evaluate.data_set import judge_of
from perception.train.data.frames import load_frames
from perception.types import Detections

_SHARED = Path(__file__).parents[3] / ".." / "shared" / "data"
REAL = Path(os.environ.get("SPARSIGHT_DATA", _SHARED)) / "dair_v2x"
needs_real = pytest.mark.skipif(not REAL.is_dir(), reason=f"needs DAIR-V2X in {REAL}")


def test_both_sides_are_read(tmp_path: Path) -> None:
    """A side has a folder of scans like KITTI, but is no KITTI folder."""
    root = dair_folder(tmp_path)
    for name, first, box in (("vehicle-side", "000100", CAR), ("infrastructure-side", "000007", CAR_OF_POST)):
        data_set = open_data_set(root / name)
        assert type(data_set) is DairV2xSide
        assert (len(data_set), data_set.evaluation) == (2, "boxes")
        frame = data_set[0]
        assert (frame.frame_id, frame.labels[0], frame.time_ns) == (first, "Car", 1_626_240_238_805_763_000)
        np.testing.assert_allclose(frame.boxes[0], box, atol=1e-5)
        # As centres, boxes hold their points.
        assert points_in_boxes(frame.points[:, :3], frame.boxes[:1]).sum() == 200


def test_the_folder_of_both_sides_names_its_data_sets(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="vehicle-side, infrastructure-side or cooperative"):
        open_data_set(dair_folder(tmp_path))


def test_labels_without_volume_are_dropped_and_counted(tmp_path: Path) -> None:
    frame = open_data_set(dair_folder(tmp_path) / "vehicle-side")[0]
    assert frame.labels == ["Car", "Van"]
    assert frame.skipped == ("a box without volume (visible in the camera only)",)


def test_the_position_of_the_post_is_corrected(tmp_path: Path) -> None:
    """The offset of a pair is added; other frames keep their position."""
    root = dair_folder(tmp_path)
    paired, alone = open_data_set(root / "infrastructure-side")
    assert paired.pose is not None
    assert alone.pose is not None
    np.testing.assert_allclose(paired.pose, matrix(ROADSIDE_YAW_RAD, ROADSIDE_AT), atol=1e-9)
    np.testing.assert_allclose((paired.pose - alone.pose)[:3, 3], [0.66, 0.5, 0.0], atol=1e-9)
    vehicle = open_data_set(root / "vehicle-side")[0].pose
    assert vehicle is not None
    np.testing.assert_allclose(vehicle, matrix(VEHICLE_YAW_RAD, VEHICLE_AT), atol=1e-9)


def test_pairs_join_both_scans_in_the_frame_of_the_vehicle(tmp_path: Path) -> None:
    root = dair_folder(tmp_path)
    data_set = open_data_set(root / "cooperative")
    assert type(data_set) is DairV2xPairs
    (frame,) = data_set
    assert frame.frame_id == "000100"
    assert len(frame.points) == 2 * 3200
    inside = points_in_boxes(frame.points[:, :3], frame.boxes)
    assert frame.labels == ["Car", "Car", "Van"]
    # The points of the post's car come from the post, those of the other car from the vehicle.
    assert inside[0, 3200:].sum() == inside[1, :3200].sum() == 200


def test_joint_labels_take_their_yaw_from_the_corners(tmp_path: Path) -> None:
    """Edge 3 to 0 may point backwards; the yaw of the vehicle's LiDAR settles it where there is one."""
    (frame,) = open_data_set(dair_folder(tmp_path) / "cooperative")
    np.testing.assert_allclose(frame.boxes[1], CAR, atol=1e-4)
    np.testing.assert_allclose(frame.boxes[2], VAN_BESIDE, atol=1e-4)
    expected = wrap_angle(CAR_OF_POST[6] + ROADSIDE_YAW_RAD - VEHICLE_YAW_RAD)
    assert abs(wrap_angle(float(frame.boxes[0, 6]) - expected)) < 1e-4


def test_only_boxes_in_the_picture_are_judged(tmp_path: Path) -> None:
    """The vehicle sees all around, but only the picture is labelled: the van beside counts nowhere."""
    data_set = open_data_set(dair_folder(tmp_path) / "vehicle-side")
    covered = data_set[0].covered(data_set[0].boxes)
    assert covered is not None
    assert covered.tolist() == [True, False]
    judge = judge_of(data_set)
    behind = (-20.0, *CAR[1:])
    found = Detections(
        boxes=np.array([CAR, VAN_BESIDE, behind], np.float32),
        scores=np.array([0.9, 0.8, 0.7], np.float32),
        labels=["Car", "Van", "Car"],
    )
    result = judge.evaluate(judge.write(tmp_path, ((frame, found) for frame in data_set))).to_dict()
    assert list(result["classes"]) == ["Car"]
    car = result["classes"]["Car"]
    assert (car["labels"], car["detections"], car["false"], car["AP"]["3d"]) == (2, 2, 0, 100.0)
    assert result["left_out"] == {
        "labels with a centre outside the image": 2,
        "detections with a centre outside the image, where nothing is labelled": 4,
    }


def test_pairs_are_judged_in_either_picture(tmp_path: Path) -> None:
    (frame,) = open_data_set(dair_folder(tmp_path) / "cooperative")
    covered = frame.covered(frame.boxes)
    assert covered is not None
    assert covered.tolist() == [True, True, False]


def test_training_sees_the_labelled_part_only(tmp_path: Path) -> None:
    """Unlabelled cars elsewhere would teach that they are background."""
    data_set = open_data_set(dair_folder(tmp_path) / "vehicle-side")
    frame = load_frames(data_set, ["Car", "Van"])[0]
    assert frame.labels.tolist() == [0]
    assert 200 < len(frame.points) < 2000
    assert frame.points[:, 0].min() > 0


def test_scans_find_their_labels(tmp_path: Path) -> None:
    root = dair_folder(tmp_path)
    frame = frame_beside(root / "infrastructure-side" / "velodyne" / "000007.pcd")
    assert frame is not None
    assert frame.labels == ["Car"]


def test_damaged_files_are_named(tmp_path: Path) -> None:
    """Damaged labels leave the scan usable."""
    side = dair_folder(tmp_path) / "vehicle-side"
    path = side / "label" / "lidar" / "000100.json"
    path.write_text(path.read_text().replace('"rotation": 0.3', '"rotation": "left"'))
    frame = open_data_set(side)[0]
    assert len(frame.points) == 3200
    with pytest.raises(DataError, match=r"000100.json: object 0: .*rotation"):
        _ = frame.boxes
    (side / "calib" / "lidar_to_novatel" / "000101.json").write_text('{"transform": {"rotation": [[1, 0]]}}')
    with pytest.raises(DataError, match=r"000101.json: field rotation must be 9 numbers"):
        open_data_set(side).frame("000101")
    table = json.loads((side / "data_info.json").read_text())
    del table[1]["pointcloud_timestamp"]
    (side / "data_info.json").write_text(json.dumps(table))
    with pytest.raises(DataError, match="entry 1: field pointcloud_timestamp is missing"):
        open_data_set(side).frame("000100")


def test_init_writes_lists_and_a_configuration(tmp_path: Path) -> None:
    """The layout tells the rest: a description would hide poses and the view of the camera."""
    side = dair_folder(tmp_path) / "vehicle-side"
    with pytest.raises(DataError, match="perceive init"):
        open_data_set(side, "train")
    assert main(["init", str(side)]) == 0
    assert not (side / "dataset.yaml").exists()
    assert type(open_data_set(side, "train")) is DairV2xSide
    assert len(open_data_set(side, "train")) == len(open_data_set(side, "val")) == 1
    config = load_config(TrainConfig, side / "train.yaml")
    assert config.detector.head.classes == ("Car", "Van")
    assert config.detector.pillars.range_m is not None
    assert config.detector.pillars.range_m[0] == 0
    checks = {item.check: item.severity for item in examine_data_set(side).findings}
    assert "error" not in checks.values()
    assert checks["view"] == checks["skipped"] == "info"


def test_labels_that_were_drawn_in_the_picture_are_not_taken(tmp_path: Path) -> None:
    label = dair_folder(tmp_path) / "vehicle-side" / "label"
    assert recognised_format(label / "camera") is None
    assert recognised_format(label / "lidar") is DairV2xLabels


@pytest.mark.slow
def test_detect_takes_the_folder_of_a_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    side, out = dair_folder(tmp_path) / "infrastructure-side", tmp_path / "out"
    assert main(["detect", str(side), "--out", str(out), "--json"]) == 0
    assert (out / "000007.png").is_file()
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["frame"] for record in records] == ["000007", "000008"]
    position = np.array(records[0]["pose"]["map_from_lidar"])[:3, 3]
    assert position.tolist() == pytest.approx(ROADSIDE_AT)


@needs_real
@pytest.mark.parametrize(("side", "frames"), [("vehicle-side", 46), ("infrastructure-side", 36)])
def test_real_sides(side: str, frames: int) -> None:
    """Labels are centres: as bottoms, or with the other sign of yaw, they hold fewer points."""
    data_set = open_data_set(REAL / side)
    assert len(data_set) == frames
    held = np.zeros(3, int)
    for frame in data_set[:: frames // 4]:
        boxes = frame.boxes
        raised, mirrored = boxes.copy(), boxes.copy()
        raised[:, 2] += raised[:, 5] / 2
        mirrored[:, 6] *= -1
        assert (boxes[:, 3:6] > 0).all()
        for row, variant in enumerate((boxes, raised, mirrored)):
            held[row] += int(points_in_boxes(frame.points[:, :3], variant).sum())
    assert held[0] > 1.4 * held[1]
    assert held[0] > held[2]


@needs_real
def test_real_joint_labels_agree_with_those_in_the_frame_of_the_vehicle() -> None:
    same: Callable[[float], float] = lambda angle: abs(wrap_angle(2 * angle)) / 2  # noqa: E731
    for frame in open_data_set(REAL / "cooperative")[::5]:
        told = json.loads((REAL / "cooperative" / "label" / "lidar" / f"{frame.frame_id}.json").read_text())
        assert len(told) == len(frame.boxes)
        for item, box in zip(told, frame.boxes, strict=True):
            assert [item["3d_location"][key] for key in "xyz"] == pytest.approx(box[:3].tolist(), abs=0.01)
            assert same(item["rotation"] - float(box[6])) < 0.01


@needs_real
def test_real_roadside_labels_lie_on_joint_labels_with_the_offset() -> None:
    """With the offset, 68 % of the vehicles lie within 5 cm of a joint label; without it, none do."""
    near, total = np.zeros(2, int), 0
    for pair in open_data_set(REAL / "cooperative"):
        assert isinstance(pair, PairFrame)
        vehicle, post = pair.vehicle.pose, pair.roadside.pose
        assert vehicle is not None
        assert post is not None
        joint = pair.boxes[:, :3] @ vehicle[:3, :3].T + vehicle[:3, 3]
        rows = [row for row, name in enumerate(pair.roadside.labels) if name in ("Car", "Van", "Bus")]
        own = pair.roadside.boxes[rows, :3] @ post[:3, :3].T + post[:3, 3]
        total += len(own)
        for place, offset in enumerate(([0.0, 0.0, 0.0], [0.66, 0.66, 0.0])):
            distance = np.linalg.norm(own[:, None] - offset - joint[None], axis=2).min(axis=1)
            near[place] += int((distance < 0.05).sum())
    assert near[0] > 0.6 * total
    assert near[1] == 0
