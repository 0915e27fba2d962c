"""`perceive init` on a folder of known scans and labels, and on the same written in other conventions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_scene import BOXES, NAMES, WRITERS, describe_folder, points_on

from perception import PointCloud
from perception.cli import main
from perception.config import TrainConfig, load_config
from perception.data import open_data_set
from perception.describe import FolderDescription, write_files
from perception.describe import describe_folder as look_at
from perception.describe.splits import in_time, split_frames
from perception.describe.training import suggested_range_m, suggested_shrink
from perception.doctor import examine_data_set
from perception.errors import DataError
from perception.io import save_point_cloud
from perception.io.transform import ScanTransform

HEIGHT_M = 1.7


def undescribed(root: Path, label_format: str = "json") -> Path:
    """The scans and labels alone."""
    describe_folder(root, label_format)
    (root / "dataset.yaml").unlink()
    for path in (root / "splits").iterdir():
        path.unlink()
    return root


def found(described: FolderDescription) -> dict[str, Any]:
    """Values by field."""
    return {item.field: item.value for item in described.evidence}


def rewrite_labels(root: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Both frames with other numbers."""
    for seed, frame_id in enumerate(("a1", "a2")):
        boxes = BOXES + np.array([seed, 0, 0, 0, 0, 0, 0])
        WRITERS["json"](root / "labels", frame_id, change(boxes), NAMES)


def read_back(root: Path) -> np.ndarray:
    """The boxes of the first frame by the written description."""
    write_files(look_at(root))
    return open_data_set(root)[0].boxes


@pytest.mark.parametrize("label_format", WRITERS)
def test_every_format_is_found_and_read(label_format: str, tmp_path: Path) -> None:
    described = look_at(undescribed(tmp_path, label_format))
    values = found(described)
    assert (values["scans.path"], values["labels.path"]) == ("scans", "labels")
    assert values["labels.format"] == label_format
    assert (values["scans.scale"], values["scans.axes"]) == (1.0, "x,y,z")
    assert values["scans.columns"] == ["x", "y", "z", "intensity"]
    assert values["scans.intensity_scale"] == 1.0
    assert values["scans.sensor_height_m"] == pytest.approx(HEIGHT_M, abs=0.02)
    assert values["labels.angles"] == ("degrees" if label_format == "labelcloud" else "radians")
    assert (values["labels.z"], values["labels.turn_deg"]) == ("centre", 0.0)
    assert described.description.class_names == ("pallet", "forklift")
    counts = {name: facts.boxes for name, facts in described.classes.items()}
    assert counts == {"pallet": 4, "forklift": 2}
    written = write_files(described)
    assert [path.name for path in written] == ["dataset.yaml", "train.yaml", "train.txt", "val.txt"]
    frame = open_data_set(tmp_path, "train")[0]
    assert (frame.frame_id, frame.labels) == ("a1", NAMES)
    np.testing.assert_allclose(frame.boxes[:, :6], BOXES[:, :6], atol=1e-5)
    config = load_config(TrainConfig, tmp_path / "train.yaml")
    assert config.detector.head.classes == ("pallet", "forklift")
    assert "# measured: most points of 2 scans" in (tmp_path / "dataset.yaml").read_text()


@pytest.mark.parametrize("label_format", WRITERS)
def test_points_a_box_are_those_of_the_doctor_where_all_boxes_were_looked_at(
    label_format: str, tmp_path: Path
) -> None:
    """The same function counts; of further frames `perceive init` says how many boxes it looked at."""
    described = look_at(undescribed(tmp_path, label_format))
    write_files(described)
    told = examine_data_set(tmp_path).statistics
    looked = {name: facts for name, facts in described.classes.items() if facts.points_boxes == facts.boxes}
    assert looked.keys() == told.points_per_box.keys()
    assert {name: facts.points for name, facts in looked.items()} == {
        name: spread.median for name, spread in told.points_per_box.items()
    }


@pytest.mark.parametrize(("axes", "scale"), [("x,y,z", 0.001), ("z,-x,-y", 1.0), ("z,-x,-y", 0.001)])
def test_unit_and_axes_are_measured(axes: str, scale: float, tmp_path: Path) -> None:
    undescribed(tmp_path)
    matrix = np.linalg.inv(ScanTransform(scale, axes).matrix)
    for seed, frame_id in enumerate(("a1", "a2")):
        points = points_on(BOXES, seed)
        points[:, 0] = np.abs(points[:, 0])
        own = np.column_stack([points[:, :3] @ matrix.T, points[:, 3]]).astype("<f4")
        own.tofile(tmp_path / f"scans/{frame_id}.bin")
    values = found(look_at(tmp_path))
    assert (values["scans.scale"], values["scans.axes"]) == (scale, axes)
    assert values["scans.sensor_height_m"] == pytest.approx(HEIGHT_M, abs=0.02)


@pytest.mark.parametrize(
    ("field", "value", "change"),
    [
        ("labels.angles", "degrees", lambda boxes: np.column_stack([boxes[:, :6], np.degrees(boxes[:, 6])])),
        ("labels.turn_deg", 90.0, lambda boxes: boxes - np.array([0, 0, 0, 0, 0, 0, np.pi / 2])),
        ("labels.z", "bottom", lambda boxes: boxes - np.outer(boxes[:, 5] / 2, [0, 0, 1, 0, 0, 0, 0])),
    ],
)
def test_conventions_of_labels_are_measured(
    field: str, value: object, change: Callable[[np.ndarray], np.ndarray], tmp_path: Path
) -> None:
    undescribed(tmp_path)
    rewrite_labels(tmp_path, change)
    assert found(look_at(tmp_path))[field] == value
    boxes = read_back(tmp_path)
    np.testing.assert_allclose(boxes[:, :6], BOXES[:, :6], atol=1e-5)
    np.testing.assert_allclose(np.cos(2 * (boxes[:, 6] - BOXES[:, 6])), 1, atol=1e-5)


def test_columns_are_recognised_by_their_numbers(tmp_path: Path) -> None:
    undescribed(tmp_path)
    random = np.random.default_rng(0)
    for frame_id in ("a1", "a2"):
        # Ring by ring, as sensors store them; then time and two more columns.
        radius, turn = np.repeat(np.linspace(3, 20, 20), 180), np.tile(np.linspace(-3, 3, 180), 20)
        xyz = np.column_stack([radius * np.cos(turn), radius * np.sin(turn), np.full(3600, -1.7)])
        further = [np.linspace(0, 0.1, 3600), xyz[:, 0] * 7, -xyz[:, 1]]
        table = np.column_stack([xyz, random.integers(0, 256, 3600), *further]).astype("<f4")
        table.tofile(tmp_path / f"scans/{frame_id}.bin")
    values = found(look_at(tmp_path))
    assert values["scans.columns"] == ["x", "y", "z", "intensity", "_", "_", "_"]
    assert values["scans.intensity_scale"] == 255
    for path in (tmp_path / "scans").iterdir():
        np.save(path.with_suffix(".npy"), np.fromfile(path, "<f4").reshape(-1, 7)[:, :6])
        path.unlink()
    assert found(look_at(tmp_path))["scans.columns"] == ["x", "y", "z", "intensity", "_", "_"]
    for path in (tmp_path / "scans").iterdir():
        np.save(path, np.load(path)[:, [0, 1, 2, 5]])
    assert found(look_at(tmp_path))["scans.columns"] == ["x", "y", "z", "_"]
    np.save(next((tmp_path / "scans").iterdir()), np.zeros((9, 40)))
    with pytest.raises(DataError, match=r"write dataset\.yaml with scans\.columns") as caught:
        look_at(tmp_path)
    assert "--columns" not in str(caught.value)


def test_a_count_of_photons_is_scaled_by_what_one_in_a_hundred_exceeds(tmp_path: Path) -> None:
    """Boats in a harbour: values to 5,687, and a median so low that 65,535 would leave nothing of it."""
    undescribed(tmp_path)
    for seed, path in enumerate(sorted((tmp_path / "scans").glob("*.bin"))):
        table = np.fromfile(path, "<f4").reshape(-1, 4)
        table[:, 3] = np.minimum(np.random.default_rng(seed).lognormal(4.5, 1.6, len(table)), 5687).round()
        table.tofile(path)
    (scale,) = (one for one in look_at(tmp_path).evidence if one.field == "scans.intensity_scale")
    assert scale.how.endswith(f"one in a hundred is above {scale.value:g}")
    assert (scale.value, scale.sure) == (pytest.approx(3700, rel=0.25), "assumed")


def test_spellings_are_joined_and_lists_are_kept(tmp_path: Path) -> None:
    undescribed(tmp_path, "openpcdet")
    WRITERS["openpcdet"](tmp_path / "labels", "a2", BOXES, ["Pallet", "forklift", "pallet"])
    (tmp_path / "ImageSets").mkdir()
    (tmp_path / "ImageSets/train.txt").write_text("a1\n")
    described = look_at(tmp_path)
    assert described.description.classes == {"pallet": "pallet", "forklift": "forklift", "Pallet": "pallet"}
    assert (described.description.splits, described.lists) == ("ImageSets", {})
    write_files(described)
    assert open_data_set(tmp_path, "train").frame_ids == ["a1"]


def test_names_of_classes_that_weights_know_are_mapped(tmp_path: Path) -> None:
    """``car`` for ``Car`` would be learnt anew: an AP of 0.00 for 76.9."""
    undescribed(tmp_path)
    WRITERS["json"](tmp_path / "labels", "a1", BOXES, ["vehicle.car", "person", "Motorcyclist"])
    WRITERS["json"](tmp_path / "labels", "a2", BOXES, ["vehicle.car", "bicyclist", "pallet"])
    described = look_at(tmp_path)
    assert described.description.classes == {
        "vehicle.car": "Car",
        "person": "Pedestrian",
        "Motorcyclist": "Motorcyclist",
        "bicyclist": "Cyclist",
        "pallet": "pallet",
    }
    write_files(described)
    text = (tmp_path / "dataset.yaml").read_text()
    assert "vehicle.car is mapped to Car" in " ".join(text.replace("#", " ").split())
    assert open_data_set(tmp_path, "train")[0].labels[0] == "Car"
    classes = load_config(TrainConfig, tmp_path / "train.yaml").detector.head.classes
    assert set(classes) == {"Car", "Pedestrian", "Motorcyclist", "Cyclist", "pallet"}
    found = examine_data_set(tmp_path, classes=classes, weights="pointpillars-kitti").findings
    assert [item for item in found if item.check == "classes" and item.severity == "error"] == []


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (
            {"labels/a1.json": "[]", "labels/a2.json": "[]"},
            "2 files such as a1.json are",
        ),
        ({"labels/a1.txt": "Car 0 0 1 2 3", "labels/a2.txt": "x"}, "labels"),
        (
            {"labels/b1.json": '[{"class": "a", "box": []}]'},
            "labels",
        ),
        ({"labels.csv": "class,x,y,z,length,width,height,yaw\n"}, "no column frame"),
        ({"scans/a1.bin.json": "{}"}, "1 files such as a1.bin.json"),
        (
            {"labels/a1.json": '[{"class": "a", "box": [1]}]', "labels/a2.json": "{"},
            "2 of 2 label files",
        ),
    ],
)
def test_labels_that_cannot_be_used_are_an_error(
    texts: dict[str, str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not a description without classes, and status 0."""
    undescribed(tmp_path)
    for path in (tmp_path / "labels").iterdir():
        path.unlink()
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert main(["init", str(tmp_path)]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "dataset.yaml").exists()
    assert main(["init", str(tmp_path), "--no-labels"]) == 0
    assert open_data_set(tmp_path).classes == ()


def test_a_folder_without_labels(tmp_path: Path) -> None:
    undescribed(tmp_path)
    for path in (tmp_path / "labels").iterdir():
        path.unlink()
    (tmp_path / "calib").mkdir()
    (tmp_path / "calib/a1.txt").write_text("P0: 1 0 0")
    described = look_at(tmp_path)
    assert described.training is None
    assert described.description is not None
    assert described.description.labels is None
    assert [path.name for path in write_files(described)] == ["dataset.yaml"]
    assert [frame.labelled for frame in open_data_set(tmp_path)] == [False, False]


def test_damage_is_told(tmp_path: Path) -> None:
    undescribed(tmp_path)
    (tmp_path / "labels/a2.json").write_text('[{"class": "a", "box": [1]}]')
    (tmp_path / "scans/a2.bin").write_bytes(b"123")
    with pytest.raises(DataError, match=r"a2\.bin: truncated"):
        look_at(tmp_path)
    (tmp_path / "scans/a2.bin").unlink()
    told = "\n".join(look_at(tmp_path).remarks)
    assert "1 of 2 label files" in told
    assert "a2.json: object 0: field box" in told
    (tmp_path / "scans/a1.bin").write_bytes(b"")
    with pytest.raises(DataError, match="fewer than 100 points"):
        look_at(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        look_at(tmp_path / "nothing")
    with pytest.raises(DataError, match="in this folder or"):
        look_at(tmp_path / "labels")
    with pytest.raises(ValueError, match="val_share must be between"):
        look_at(tmp_path, val_share=1.0)


def test_the_command_never_overwrites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(undescribed(tmp_path))
    assert main(["init", folder]) == 0
    assert "perceive doctor" in capsys.readouterr().out
    assert (tmp_path / "splits/train.txt").read_text() == "a1\n"
    (tmp_path / "splits/train.txt").write_text("a2\n")
    first = (tmp_path / "dataset.yaml").read_text()
    (tmp_path / "dataset.yaml").write_text(first + "# mine\n")
    assert main(["init", folder]) == 2
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "dataset.yaml").read_text().endswith("# mine\n")
    assert main(["init", folder, "--force", "--json"]) == 0
    assert "# mine" not in (tmp_path / "dataset.yaml").read_text()
    assert (tmp_path / "splits/train.txt").read_text() == "a2\n"
    record = json.loads(capsys.readouterr().out)
    assert (record["scans"], record["splits"]) == (2, {})
    assert {item["sure"] for item in record["found"]} <= {"measured", "likely", "assumed"}


def test_lists_that_it_made_are_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not those of labels that are no longer there."""
    folder = str(undescribed(tmp_path))
    assert main(["init", folder]) == 0
    for kind, suffix in (("scans", "bin"), ("labels", "json")):
        (tmp_path / kind / f"a1.{suffix}").rename(tmp_path / kind / f"a3.{suffix}")
    assert main(["init", folder, "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["splits"] == {"train": 1, "val": 1}
    lists = [(tmp_path / f"splits/{split}.txt").read_text() for split in ("train", "val")]
    assert sorted(lists) == ["a2\n", "a3\n"]
    assert len(open_data_set(tmp_path, "train")) == 1


def test_skipped_entries_are_counted(tmp_path: Path) -> None:
    described = look_at(undescribed(tmp_path, "dair-v2x"))
    assert "2 label entries were skipped: a box without volume (visible in the camera only)" in (
        described.remarks
    )
    write_files(described)
    (found,) = [item for item in examine_data_set(tmp_path).findings if item.check == "skipped"]
    assert (found.severity, found.frames) == ("info", ("a1", "a2"))
    assert "were skipped" in found.message


def test_boxes_higher_than_cars_are_within_the_range(tmp_path: Path) -> None:
    """The doctor must not refuse what init wrote: barges of 36 m by 3 m by 15 m, z up to 25 m."""
    undescribed(tmp_path)
    ship = np.array([[10.0, 12.0, 3.0, 36.0, 3.0, 15.0, 0.5]])
    for seed, frame_id in enumerate(("a1", "a2")):
        WRITERS["json"](tmp_path / "labels", frame_id, ship, ["ship"])
        # Hulls and masts at all heights, and no ground.
        random = np.random.default_rng(seed)
        rest = random.uniform([-30, -30, -6, 0], [30, 30, 9, 1], (900, 4))
        points = np.concatenate([points_on(ship, seed)[2000:], rest]).astype(np.float32)
        save_point_cloud(tmp_path / f"scans/{frame_id}.bin", PointCloud(points))
    write_files(look_at(tmp_path))
    pillars = load_config(TrainConfig, tmp_path / "train.yaml").detector.pillars
    assert pillars.range_m is not None
    assert (pillars.range_m[2], pillars.range_m[5]) == (-5.0, 11.0)
    assert pillars.range_m[3] > 10 + 18
    found = examine_data_set(tmp_path, pillars=pillars).findings
    assert [item.check for item in found if item.severity == "error"] == []


def test_where_the_fullest_layer_is_no_ground_the_height_is_not_measured(tmp_path: Path) -> None:
    """Over water it differs by metres between scans."""
    undescribed(tmp_path)
    for frame_id, lowered in (("a1", 0.0), ("a2", 2.0)):
        points = points_on(BOXES) - np.array([0, 0, lowered, 0], np.float32)
        save_point_cloud(tmp_path / f"scans/{frame_id}.bin", PointCloud(points))
    (height,) = [item for item in look_at(tmp_path).evidence if item.field == "scans.sensor_height_m"]
    assert (height.value, height.sure) == (None, "assumed")
    assert "so it is no" in height.how


def test_labels_of_a_part_of_the_turn_are_told(tmp_path: Path) -> None:
    undescribed(tmp_path)
    ahead = np.tile(BOXES, (9, 1))
    for frame_id in ("a1", "a2"):
        WRITERS["json"](tmp_path / "labels", frame_id, ahead, NAMES * 9)
    assert any("labels only from -18 to 19 degrees" in remark for remark in look_at(tmp_path).remarks)


def test_blocks_of_time_and_classes_on_both_sides() -> None:
    frames = [f"{number}" for number in range(40)]
    names = {frame: ["a", "b"] if 8 <= int(frame) < 24 else ["a"] for frame in frames}
    split = split_frames(frames, names, share=0.2, seed=3)
    assert sorted(split.train + split.val, key=int) == frames
    assert (len(split.val), split.blocks) == (8, 5)
    assert {name for frame in split.val for name in names[frame]} == {"a", "b"}
    borders = sum((one in split.val) != (other in split.val) for one, other in itertools.pairwise(frames))
    assert borders <= 2
    assert split == split_frames(frames, names, share=0.2, seed=3)
    assert split_frames(["x"], {}, share=0.5, seed=0).train == ["x"]
    assert in_time(["b10", "b9", "a"], {}) == ["a", "b9", "b10"]
    assert in_time(["b", "a"], {"a": 2, "b": 1}) == ["b", "a"]


def test_ranges_are_whole_cells() -> None:
    boxes = np.array([[15.0, -3, 0, 1, 1, 1, 0]])
    low_x, low_y, low_z, high_x, high_y, high_z = suggested_range_m(boxes, 80, behind=True)
    assert (low_x, low_y, low_z, high_z) == (-high_x, -high_y, -3, 1)
    assert 19 <= high_x < 20.5
    assert suggested_range_m(boxes, 80, behind=False)[0] == 0
    assert suggested_range_m(boxes, 80, behind=False)[4] < 11
    high = np.array([[15.0, -3, 4, 1, 1, 3, 0], [1e5, 0, 0, 4, 2, 2, 0], [5, 0, 90, 4000, 2, 2, 0]])
    assert suggested_range_m(high, 80, behind=True, raised_m=1.0) == (-20.48, -20.48, -3, 20.48, 20.48, 7)
    assert suggested_range_m(np.zeros((0, 7)), 12.0, behind=False)[3] >= 12


def harbour(root: Path, *, heading: float = 0.0) -> Path:
    """Ships along the axes, hulls and masts at all heights, no ground, odd intensity."""
    undescribed(root)
    random = np.random.default_rng(0)
    for seed, frame_id in enumerate(("a1", "a2")):
        ships = np.array(
            [
                [x, y, 3.0, *((36.0, 9.0) if row % 2 else (9.0, 36.0)), 15.0, heading]
                for row, (x, y) in enumerate([(-50, -50), (-50, 0), (-50, 50), (0, 50), (50, 50), (50, -50)])
            ]
        )
        WRITERS["openpcdet"](root / "labels", frame_id, ships, ["ship"] * len(ships))
        (root / "labels" / f"{frame_id}.json").unlink()
        bank = random.uniform([-90, -90, -8 + 3 * seed, 0], [90, 90, -7 + 3 * seed, 0], (2000, 4))
        rest = random.uniform([-90, -90, -6, 0], [90, 90, 20, 0], (2000, 4))
        hulls = [
            np.column_stack([random.uniform(-0.5, 0.5, (200, 3)) * ship[3:6] + ship[:3], np.zeros(200)])
            for ship in ships
        ]
        points = np.concatenate([bank, rest, *hulls]).astype(np.float32)
        points[:, 3] = np.minimum(random.lognormal(4, 1.2, len(points)), 5687).round(1)
        np.save(root / f"scans/{frame_id}.npy", points)
        (root / f"scans/{frame_id}.bin").unlink()
    return root


def test_large_objects_without_headings_are_described(tmp_path: Path) -> None:
    described = look_at(harbour(tmp_path))
    assert found(described)["labels.headings"] is False
    write_files(described)
    config = load_config(TrainConfig, tmp_path / "train.yaml")
    pillars, augment = config.detector.pillars, config.augment
    # The narrowest class is 9 m wide, five times a car.
    assert (pillars.shrink, pillars.cube_m, pillars.pillar_size_m) == (5.0, 0.16, 0.16)
    assert pillars.range_m is not None
    assert 5 * pillars.range_m[3] > 50 + 18
    assert config.detector.limits == (100, 48, 64)
    assert config.detector.head.headings is False
    assert (augment.quarter_turns, augment.rotation_rad, augment.object_noise_rad) == (True, 0.0, 0.0)
    # The full scale of intensity is unknown.
    assert augment.drop_intensity > 0
    report = examine_data_set(tmp_path, pillars=pillars, headings=False)
    told = {item.check: item for item in report.findings}
    assert [told[check].severity for check in ("heading", "intensity", "ground")] == ["info"] * 3
    assert "All 12 headings are 0" in told["heading"].message
    assert "are divided by" in told["intensity"].message
    assert "as over water" in told["ground"].message
    assert report.ok
    (warning,) = [
        item for item in examine_data_set(tmp_path, headings=True).findings if item.check == "heading"
    ]
    assert (warning.severity, "quarter_turns: true" in warning.fix) == ("warning", True)


def test_labels_without_headings_that_the_description_does_not_know(tmp_path: Path) -> None:
    write_files(look_at(harbour(tmp_path)))
    path = tmp_path / "dataset.yaml"
    path.write_text(path.read_text().replace("headings: false", "headings: true"))
    (finding,) = [item for item in examine_data_set(tmp_path).findings if item.check == "heading"]
    assert (finding.severity, "labels.headings: false" in finding.fix) == ("warning", True)


def test_one_heading_is_a_heading(tmp_path: Path) -> None:
    described = look_at(harbour(tmp_path, heading=0.1))
    assert found(described)["labels.headings"] is True
    write_files(described)
    assert load_config(TrainConfig, tmp_path / "train.yaml").detector.head.headings
    assert "heading" not in [item.check for item in examine_data_set(tmp_path, headings=True).findings]


def test_only_large_classes_shrink_the_scene() -> None:
    ships, people = np.zeros((3, 7)), np.zeros((1, 7))
    # Length and width may be exchanged.
    ships[:, 3:6], people[:, 3:6] = [(36.0, 8.6, 15.0), (8.6, 36.0, 15.0), (36.0, 8.6, 15.0)], (0.8, 0.6, 1.7)
    assert suggested_shrink(ships, ["ship"] * 3) == 5.0
    assert suggested_shrink(np.concatenate([ships, people]), ["ship"] * 3 + ["person"]) == 1.0
    assert suggested_shrink(0.3 * ships, ["truck"] * 3) == 1.0
    assert suggested_shrink(ships[:0], []) == 1.0
    # Another unit, which the doctor reports.
    assert suggested_shrink(1000 * ships, ["ship"] * 3) == 1.0
