"""Folds by drive."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.detector.folds import folds_by_drive, main, sources
from perception.data import open_data_set
from perception.data.camera import CameraCalibration
from perception.data.kitti import write_calibration
from perception.errors import DataError


@pytest.fixture
def kitti(tmp_path: Path) -> Path:
    """Five frames of four drives, one car each; the last is held out."""
    root = tmp_path / "kitti"
    for name in ("training/velodyne", "training/label_2", "training/calib", "ImageSets"):
        (root / name).mkdir(parents=True)
    lines = ["# id drive frame set"]
    for number, (drive, part) in enumerate(
        [("a", "old"), ("a", "new"), ("b", "new"), ("c", "old"), ("d", "old")]
    ):
        frame = f"{number:06d}"
        lines.append(f"{frame} {drive} {number} {part}")
        (root / f"training/velodyne/{frame}.bin").write_bytes(b"")
        label = "Car 0 0 -1.5 600 180 660 230 1.5 1.6 4.0 1.0 1.7 20.0 -1.5\n"
        (root / f"training/label_2/{frame}.txt").write_text(label)
        write_calibration(root / f"training/calib/{frame}.txt", CameraCalibration.default())
    (root / "drives.txt").write_text("\n".join(lines) + "\n")
    (root / "ImageSets/val.txt").write_text("000000\n")
    return root


def test_drives_stay_together_and_folds_are_as_heavy() -> None:
    drives = {f"{number}": "large" if number < 6 else f"d{number % 5}" for number in range(20)}
    folds = folds_by_drive(drives, dict.fromkeys(drives, 1), 3)
    assert sorted(frame for fold in folds for frame in fold) == sorted(drives)
    for drive in set(drives.values()):
        assert sum(any(drives[frame] == drive for frame in fold) for fold in folds) == 1
    assert Counter(map(len, folds)).keys() <= {6, 7, 8}


def test_folders_of_folds(kitti: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["split", "--data", str(kitti), "--out", str(tmp_path / "folds"), "--folds", "2"]) == 0
    held = [open_data_set(tmp_path / f"folds/{fold}", "val").frame_ids for fold in range(2)]
    learned = [open_data_set(tmp_path / f"folds/{fold}", "train").frame_ids for fold in range(2)]
    assert sorted(held[0] + held[1]) == sorted(learned[0] + learned[1]) == [f"{n:06d}" for n in range(5)]
    drives = {frame: source.drive for frame, source in sources(kitti).items()}
    assert not {drives[frame] for frame in held[0]} & {drives[frame] for frame in learned[0]}
    development = open_data_set(tmp_path / "folds/development", "train").frame_ids
    assert development == ["000002", "000003", "000004"]  # not the later frame of drive a
    assert "development: 3 frames to train on, 1 held out" in capsys.readouterr().out


def test_runs_are_scored_together(kitti: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(5):
        folder = tmp_path / f"runs/{number % 2}/val"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(kitti / f"training/label_2/{number:06d}.txt", folder)
        path = folder / f"{number:06d}.txt"
        path.write_text(path.read_text().strip() + " 0.9\n")
    assert main(["score", "--data", str(kitti), "--runs", *map(str, (tmp_path / "runs").iterdir())]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["frames"] == 5
    assert found["settings"]["folds"] == 2
    assert found["AP40"] == found["AP40_as_found"]
    assert found["AP40"]["Car"]["3d"][1] > 0
    assert found["thresholds"]["Car"]["found"] == 5
    assert found["calibration"]["Car"]["right"] == 5


def test_footprints_are_those_of_the_boxes_that_are_scored(
    kitti: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run/val"
    folder.mkdir(parents=True)
    for number in range(5):
        label = (kitti / f"training/label_2/{number:06d}.txt").read_text()
        (folder / f"{number:06d}.txt").write_text(label.strip().replace(" 1.6 4.0 ", " 0.9 2.5 ") + " 0.9\n")
    out = tmp_path / "out.json"
    arguments = ["score", "--data", str(kitti), "--runs", str(folder.parent), "--out", str(out)]
    assert main([*arguments, "--footprint", "Car=4.0,1.6", "--png", str(tmp_path / "scores.png")]) == 0
    assert (tmp_path / "scores.png").stat().st_size > 1000
    found = json.loads(out.read_text())
    assert found["AP40_as_found"]["Car"]["3d"] == [0, 0, 0]
    assert found["AP40"]["Car"]["3d"][1] > 0
    with pytest.raises(SystemExit):
        main([*arguments, "--footprint", "Car=4.0"])
    assert "CLASS=LENGTH,WIDTH" in capsys.readouterr().err


def test_a_damaged_list_of_drives_is_named(kitti: Path) -> None:
    (kitti / "drives.txt").write_text("000000 a 0 old\n000001 a\n")
    with pytest.raises(DataError, match=r"drives\.txt: line 2: expected id, drive, frame and set"):
        sources(kitti)
