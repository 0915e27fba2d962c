"""The doctor on a folder of one's own data: sound, and made wrong in each way that would give zero AP."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_scene import BOXES, NAMES, WRITERS, describe_folder, points_on

from perception import PointCloud
from perception.cli import main
from perception.config import PillarConfig
from perception.doctor import DoctorReport, examine_data_set
from perception.io import save_point_cloud

#: Holds the scene; heights as seen from 1.73 m.
RANGE = PillarConfig(range_m=(-20.48, -20.48, -3, 20.48, 20.48, 1))
#: Of the two frames of the scene.
ORIGINS = {"a1": 0.0, "a2": 1.0}


def said(report: DoctorReport) -> str:
    """Errors and warnings, a line each."""
    told = [item for item in report.findings if item.severity != "info"]
    return "\n".join(f"{item.severity} [{item.check}] {item.message} {item.fix}" for item in told)


def relabel(root: Path, change: Callable[[np.ndarray], np.ndarray], names: list[str] = NAMES) -> None:
    """Other boxes in both frames."""
    for frame_id, shift in ORIGINS.items():
        WRITERS["json"](root / "labels", frame_id, change(BOXES + shift * np.eye(7)[0]), names)


def moved(**columns: float) -> Callable[[np.ndarray], np.ndarray]:
    """Boxes with something added to some of their numbers."""
    fields = ("x", "y", "z", "length", "width", "height", "yaw")
    return lambda boxes: boxes + np.array([columns.get(name, 0.0) for name in fields])


def test_a_sound_folder_has_only_notes(tmp_path: Path) -> None:
    report = examine_data_set(describe_folder(tmp_path), pillars=RANGE)
    assert said(report) == ""
    assert report.statistics.boxes == {"pallet": 4, "forklift": 2}
    few = next(item.message for item in report.findings if item.check == "classes")
    assert few.startswith("Few boxes of class pallet (4), forklift (2)")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda boxes: boxes * [1, 1, 1, 1, 1, 1, 180 / np.pi],
            "[heading] Headings|Set labels.angles: degrees",
        ),
        (moved(yaw=np.pi / 2), "turned by 90 degrees|Set labels.turn_deg: 90"),
        (lambda boxes: boxes - np.outer(boxes[:, 5] / 2, np.eye(7)[2]), "sunk|Set labels.z: bottom"),
        (lambda boxes: boxes * [1, 1, 1, 1000, 1000, 1000, 1], "[sizes] 100%|in millimetres"),
        (moved(z=5.0), "[floating]|different origins"),
        (moved(x=-11.0, y=-15.0), "[no points]|Boxes without points cannot be learnt"),
        (moved(x=60.0), "[range] 100.0% of the boxes are out|mostly above x|Enlarge pillars.range_m"),
        (lambda boxes: boxes * [1, 1, 1, 1, 1, 0, 1], "[sizes] 2 frames|zero or negative"),
    ],
)
def test_labels_made_wrong(change: Callable[[np.ndarray], np.ndarray], words: str, tmp_path: Path) -> None:
    relabel(describe_folder(tmp_path), change)
    found = said(examine_data_set(tmp_path, pillars=RANGE))
    assert [part for part in words.split("|") if part not in found] == []


@pytest.mark.parametrize(
    ("scans", "words"),
    [
        ({"scale": 1000.0}, "[units]|Set scans.scale: |in dataset.yaml"),
        ({"axes": "x,z,-y"}, "[axes]|so z is not up|Set scans.axes"),
        ({"sensor_height_m": 3.6}, "[ground]|given sensor height|Set scans.sensor_height_m: 1.7"),
        ({"intensity_scale": 1e-9}, "Intensity is constant"),
    ],
)
def test_descriptions_made_wrong(scans: dict[str, Any], words: str, tmp_path: Path) -> None:
    found = said(examine_data_set(describe_folder(tmp_path, scans={"path": "scans", **scans}), pillars=RANGE))
    assert [part for part in words.split("|") if part not in found] == []


def test_class_names_and_their_nearest_spelling(tmp_path: Path) -> None:
    names = ["palet", "Forklift", "crate"]
    relabel(describe_folder(tmp_path, classes={}), moved(), names)
    found = said(examine_data_set(tmp_path, classes=("pallet", "forklift")))
    assert "warning [classes] 2 boxes have the class 'palet', which is not 'pallet'." in found
    assert "error [classes] 2 boxes have the class 'Forklift', which the config calls 'forklift'" in found
    assert "Write Forklift: forklift under classes in dataset.yaml" in found
    assert "2 boxes have the unknown class 'crate'. Rename it to one of pallet, forklift" in found
    found = said(examine_data_set(tmp_path, classes=("truck",)))
    assert "No box of class truck" in found
    assert "Forklift" in found


@pytest.mark.parametrize("written", ["car", "Cars", "vehicle.car"])
def test_a_class_that_the_weights_call_otherwise_is_an_error(
    written: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fine-tuning would start it anew: an AP of 0.00 where Car had 76.9."""
    folder = describe_folder(tmp_path, classes={"pallet": written})
    assert main(["doctor", str(folder)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"weights pointpillars-kitti know '{written}' as 'Car'" in said
    assert f"Map {written} to Car under classes in dataset.yaml" in said
    assert main(["doctor", str(folder), "--from", "none"]) == 0
    # The config has the right name, the folder has not.
    assert main(["doctor", str(folder), "--from", "none", "--classes", "Car"]) == 1
    assert f"have the class '{written}', which the config calls 'Car'" in " ".join(
        capsys.readouterr().out.split()
    )


def test_empty_range_and_one_that_has_none(tmp_path: Path) -> None:
    folder = describe_folder(tmp_path)
    away = PillarConfig(range_m=(100, 100, -3, 120.48, 120.48, 1))
    assert "error [range] The range of the config (x 100 to 120.48" in said(
        examine_data_set(folder, pillars=away)
    )
    assert said(examine_data_set(folder, pillars=PillarConfig(range_m=None))) == ""
    high = describe_folder(tmp_path, scans={"path": "scans", "sensor_height_m": 1.7})
    # Heights of the range are as seen from 1.73 m: this one begins above the middle of a pallet.
    bottom = PillarConfig(range_m=(-20.48, -20.48, -1.3, 20.48, 20.48, 1))
    assert "mostly below z" in said(examine_data_set(high, pillars=bottom))


def test_nan_in_scans_and_labels(tmp_path: Path) -> None:
    folder = describe_folder(tmp_path)
    points = points_on(BOXES)
    points[:50, 1] = np.nan
    save_point_cloud(folder / "scans/a1.bin", PointCloud(points))
    (folder / "labels/a2.json").write_text('[{"class": "pallet", "box": [1, 2, NaN, 1, 1, 1, 0]}]')
    found = said(examine_data_set(folder))
    assert "warning [not finite] 1 frames contain NaN" in found
    assert "a2.json: object 0: field box must be 7 finite numbers" in found


def test_the_same_scan_under_several_names(tmp_path: Path) -> None:
    folder = describe_folder(tmp_path)
    for name in ("b1", "b2"):
        (folder / f"scans/{name}.bin").write_bytes((folder / "scans/a1.bin").read_bytes())
        (folder / f"labels/{name}.json").write_text((folder / "labels/a1.json").read_text())
    assert "3 frames hold" in said(examine_data_set(folder))
    (folder / "splits/val.txt").write_text("a2\nb1\n")
    assert "error [splits] 1 scans are in two splits under different names" in said(examine_data_set(folder))
    (folder / "splits/val.txt").write_text("a1\n")
    assert "error [splits] Splits train and val share 1 frames" in said(examine_data_set(folder))


def test_names_with_spaces_in_lists(tmp_path: Path) -> None:
    folder = describe_folder(tmp_path)
    for old, new in (("a1", "scan 1"), ("a2", "scan 2")):
        (folder / f"scans/{old}.bin").rename(folder / f"scans/{new}.bin")
        (folder / f"labels/{old}.json").rename(folder / f"labels/{new}.json")
    (folder / "splits/train.txt").write_text("scan 1\n\n")
    (folder / "splits/val.txt").write_text("scan 2\r\n")
    assert "error" not in said(examine_data_set(folder))


def test_the_command_takes_classes_and_range_of_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = describe_folder(tmp_path)
    assert main(["doctor", str(folder)]) == 0
    (folder / "train.yaml").write_text(
        "detector: {head: {classes: [pallet, forklift]},"
        " pillars: {range_m: [0, -5.12, -3, 10.24, 5.12, 1]}}\n"
    )
    assert main(["doctor", str(folder), "--json"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [item["check"] for item in report["findings"] if item["severity"] == "warning"] == ["range"]
    assert main(["doctor", str(folder), "--config", "smoke", "--classes", "pallet"]) == 0
    assert "No box of class" not in capsys.readouterr().out
