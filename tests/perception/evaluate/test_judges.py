"""Protocols on data sets: the real nuScenes scene against the devkit's numbers, racks, choices."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from nuscenes_folder import write_nuscenes

from perception.data import open_data_set
from perception.data.nuscenes import NuScenesDataSet
from perception.errors import DataError
from perception.evaluate.boxes.judge import read_records
from perception.evaluate.data_set import judge_of
from perception.evaluate.nuscenes.judge import NuScenesJudge
from perception.evaluate.nuscenes.result import NuScenesResult
from perception.evaluate.options import JudgeOptions
from perception.types import Detections

#: DetectionEval of nuscenes-devkit 1.2.0 on scene-0523: mAP, NDS, mean-over-distance AP by class.
OFFICIAL = {
    "centerpoint": (0.5982388802893158, 0.5060838902282714, (0.754, 0.701, 0.991, 0.622, 0.178, 0.746)),
    "megvii": (0.37116220966366453, 0.35322356537581484, (0.747, 0.613, 0.878, 0.533, 0.0, 0.637)),
}


@pytest.mark.parametrize("name", OFFICIAL)
def test_the_real_scene_as_the_devkit_judges_it(data_directory: Path, name: str) -> None:
    folder = data_directory / "nuscenes"
    if not folder.is_dir():
        pytest.skip(f"no nuScenes data at {folder}")
    judge = judge_of(open_data_set(folder, having="labels"))
    result = judge.evaluate(folder / "detections" / f"{name}_nuscenes_format.json")
    assert isinstance(result, NuScenesResult)
    mean_ap, nds, by_class = OFFICIAL[name]
    assert result.mean_ap == pytest.approx(mean_ap, abs=1e-6)
    assert result.nds == pytest.approx(nds, abs=1e-6)
    for found, expected in zip(result.classes.values(), by_class, strict=False):
        assert found.ap == pytest.approx(expected, abs=5e-4)


def test_racks_are_read(tmp_path: Path) -> None:
    data_set = open_data_set(write_nuscenes(tmp_path), having="labels")
    assert isinstance(data_set, NuScenesDataSet)
    for frame in data_set:
        racks = data_set.tables.bicycle_racks(data_set.sample_token(frame.frame_id))
        np.testing.assert_allclose(racks[:, 3:], [[4.4, 1.8, 1.6, 0.0]], atol=1e-9)
        assert len(frame.truth) == 2


def test_records_of_frames(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read"):
        read_records(tmp_path)
    path = tmp_path / "detections.jsonl"
    path.write_text(json.dumps({"frame": "a", **Detections.empty().to_dict()}) + "\n\n")
    assert list(read_records(tmp_path)) == ["a"]
    path.write_text("{}\n")
    with pytest.raises(DataError, match="line 1"):
        read_records(path)


def test_missing_frames_of_boxes(kitti_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "detections.jsonl"
    data_set = open_data_set(kitti_folder)
    path.write_text(json.dumps({"frame": data_set.frame_ids[0], **Detections.empty().to_dict()}) + "\n")
    with pytest.raises(DataError, match="--missing empty"):
        judge_of(data_set, "boxes").evaluate(path)
    for choice, count in (("empty", len(data_set)), ("skip", 1)):
        judge = judge_of(data_set, "boxes", JudgeOptions(missing_results=choice))  # type: ignore[arg-type]
        assert judge.evaluate(path).to_dict()["frames"] == count
    labels = judge_of(data_set, "boxes", JudgeOptions(missing_results="empty")).evaluate(path).to_dict()
    assert sum(part["labels"] for part in labels["classes"]["Car"]["by_points"].values()) > 0


def test_velocities_are_written_in_world_axes(tmp_path: Path) -> None:
    """A frame whose vehicle has turned: forward of the sensor is elsewhere in the world."""
    data_set = open_data_set(write_nuscenes(tmp_path))
    frame = data_set[4]
    assert frame.pose is not None
    boxes = np.array([[10, 0, 0, 4, 2, 1.5, 0], [12, 5, 0, 4, 2, 1.5, 0]], np.float32)
    velocities = np.array([[3, 0], [np.nan, np.nan]], np.float32)
    found = Detections(boxes, np.ones(2, np.float32), ["car", "car"], velocities=velocities)
    path = NuScenesJudge(data_set, JudgeOptions()).write(tmp_path, [(frame, found)])
    first, second = next(iter(json.loads(path.read_text())["results"].values()))
    np.testing.assert_allclose(first["velocity"], 3 * frame.pose[:2, 0], atol=1e-6)
    assert abs(first["velocity"][1]) > 0.3
    assert second["velocity"] == [0, 0]
