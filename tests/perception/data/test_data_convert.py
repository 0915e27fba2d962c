"""Conversions between data sets: nothing is lost that the new layout can hold, and it is said what is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from own_scene import describe_folder

from perception.cli import main
from perception.data import DataSet, open_data_set
from perception.data.convert import TARGETS, Target, convert
from perception.errors import DataError


def same(first: DataSet, second: DataSet, *, tolerance: float = 0.0) -> None:
    """Points to the bit, boxes within the tolerance, labels and splits."""
    assert first.frame_ids == second.frame_ids
    assert sorted(first.splits) == sorted(second.splits)
    for split in first.splits:
        assert first.split_ids(split) == second.split_ids(split)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.points, other.points)
        np.testing.assert_allclose(one.boxes, other.boxes, rtol=0, atol=tolerance)
        assert (one.labels, one.labelled) == (other.labels, other.labelled)


@pytest.mark.parametrize("to", ["json", "csv", "openpcdet"])
def test_own_layouts_keep_every_bit(to: Target, tmp_path: Path) -> None:
    folder = describe_folder(tmp_path, "sustechpoints", scans={"path": "scans", "sensor_height_m": 2.5})
    outcome = convert(folder, tmp_path / "new", to)
    assert (outcome.written, outcome.kept, outcome.damaged) == (2, 0, {})
    before, after = open_data_set(folder), open_data_set(tmp_path / "new")
    same(before, after)
    assert (after.classes, after[0].cloud.sensor_height_m) == (("pallet", "forklift"), 2.5)
    tracks = after[0].track_ids
    assert (tracks is None) == (to == "openpcdet") == any("identities" in note for note in outcome.notes)
    # And back again.
    convert(tmp_path / "new", tmp_path / "again", "json")
    same(before, open_data_set(tmp_path / "again"))


def test_kitti_and_back(tmp_path: Path, kitti_folder: Path) -> None:
    folder = describe_folder(tmp_path, "openpcdet")
    notes = convert(folder, tmp_path / "kitti", "kitti").notes
    assert any("a camera" in note for note in notes)
    same(open_data_set(folder), open_data_set(tmp_path / "kitti"), tolerance=3e-4)
    notes = convert(kitti_folder, tmp_path / "json", "json").notes
    assert any("calibration" in note for note in notes)
    same(open_data_set(kitti_folder), open_data_set(tmp_path / "json"))
    convert(kitti_folder, tmp_path / "other", "kitti")
    same(open_data_set(kitti_folder), open_data_set(tmp_path / "other"))


def test_json_keeps_poses_and_times(tmp_path: Path) -> None:
    folder = describe_folder(tmp_path)
    pose = np.arange(16).reshape(4, 4) / 7
    told = {"objects": [], "pose": pose.ravel().tolist(), "time_ns": 1_700_000_000_000_000_001}
    (folder / "labels/a1.json").write_text(json.dumps(told))
    assert convert(folder, tmp_path / "json", "json").notes == ()
    frame = open_data_set(tmp_path / "json")[0]
    assert frame.pose is not None
    assert (frame.time_ns, frame.pose.tolist()) == (1_700_000_000_000_000_001, pose.tolist())
    assert any("poses" in note for note in convert(folder, tmp_path / "csv", "csv").notes)


def test_a_conversion_goes_on(tmp_path: Path) -> None:
    folder = describe_folder(tmp_path)
    (folder / "scans/a2.bin").write_bytes(b"123")
    with pytest.raises(DataError, match=r"a2\.bin: truncated"):
        convert(folder, tmp_path / "new", "csv")
    assert main(["convert", str(folder), str(tmp_path / "new"), "--to", "csv", "--skip-damaged"]) == 1
    assert open_data_set(tmp_path / "new").frame_ids == ["a1"]
    (folder / "scans/a2.bin").write_bytes((folder / "scans/a1.bin").read_bytes())
    steps: list[tuple[int, int]] = []
    outcome = convert(folder, tmp_path / "new", "csv", on_frame=lambda *step: steps.append(step))
    assert (outcome.written, outcome.kept, steps) == (1, 1, [(1, 2), (2, 2)])
    assert not list((tmp_path / "new").rglob("partial*"))


def test_targets_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = describe_folder(tmp_path, classes={"pallet": "euro pallet"})
    with pytest.raises(DataError, match="the same folder"):
        convert(folder, folder, "json")
    with pytest.raises(ValueError, match=", ".join(TARGETS)):
        convert(folder, tmp_path / "new", "nuscenes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="word"):
        convert(folder, tmp_path / "lines", "openpcdet")
    assert main(["convert", str(folder), str(tmp_path / "new"), "--to", "json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["written"] == 2
    with pytest.raises(DataError, match="format json"):
        convert(folder, tmp_path / "new", "csv")
