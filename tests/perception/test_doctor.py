"""The doctor on a sound made-up data set, on the same one spoilt in each way, and on real data."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from perception import PointCloud
from perception.boxes import points_in_boxes
from perception.data import CameraCalibration, CameraObject, objects_from_boxes
from perception.data.kitti import write_calibration, write_objects
from perception.doctor import DoctorReport, examine_data_set, format_report
from perception.errors import DataError
from perception.io import save_point_cloud

REAL = Path(os.environ.get("SPARSIGHT_DATA", Path(__file__).parents[2] / ".." / "shared" / "data")) / "kitti"
FRAMES = 5
GROUND_M = -1.7
SIZES = {"Car": (4.0, 1.7, 1.5), "Pedestrian": (0.8, 0.6, 1.75), "Cyclist": (1.8, 0.6, 1.7)}
LABELS = ["Car"] * 5 + ["Pedestrian", "Cyclist"]
CALIBRATION = CameraCalibration.default()

Objects = list[CameraObject]


def surface(box: np.ndarray, generator: np.random.Generator, count: int = 200) -> np.ndarray:
    """(count, 3) points just inside the sides and the top of a box."""
    local = generator.uniform(-0.49, 0.49, (count, 3))
    face = generator.integers(0, 5, count)
    rows = np.arange(count)
    local[rows, np.array([0, 0, 1, 1, 2])[face]] = np.array([-0.49, 0.49, -0.49, 0.49, 0.49])[face]
    local *= box[3:6]
    cos, sin = np.cos(box[6]), np.sin(box[6])
    turned = np.stack(
        [cos * local[:, 0] - sin * local[:, 1], sin * local[:, 0] + cos * local[:, 1], local[:, 2]], 1
    )
    return turned + box[:3]


@cache
def scene(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(N, 4) points and (7, 7) boxes: ground, two walls and objects in lanes, all ahead of the sensor."""
    generator = np.random.default_rng(seed)
    boxes = np.zeros((len(LABELS), 7))
    boxes[:, 0] = 8 + 6 * np.arange(len(LABELS)) + generator.uniform(-1, 1, len(LABELS))
    boxes[:, 1] = generator.permutation([-7, -5, -2, 1, 3, 5, 7])
    boxes[:, 3:6] = [SIZES[label] for label in LABELS]
    boxes[:, 2] = GROUND_M + boxes[:, 5] / 2
    boxes[:, 6] = generator.uniform(0.3, 1.0, len(LABELS)) * generator.choice([-1, 1], len(LABELS))
    ground = np.stack([generator.uniform(3, 60, 12000), generator.uniform(-14, 14, 12000),
                       GROUND_M + generator.normal(0, 0.02, 12000)], axis=1)  # fmt: skip
    ground = ground[~points_in_boxes(ground, boxes + np.array([0, 0, 0, 0, 0, 0.2, 0])).any(axis=0)]
    walls = np.stack([generator.uniform(5, 60, 2000), generator.choice([-14.0, 14.0], 2000),
                      generator.uniform(GROUND_M, 3, 2000)], axis=1)  # fmt: skip
    xyz = np.concatenate([ground, walls, *(surface(box, generator) for box in boxes)])
    return np.column_stack([xyz, generator.uniform(0, 0.9, len(xyz))]).astype(np.float32), boxes


def same_points(points: np.ndarray) -> np.ndarray:
    return points


def same_objects(objects: Objects) -> Objects:
    return objects


def build(
    root: Path,
    *,
    points: Callable[[np.ndarray], np.ndarray] = same_points,
    objects: Callable[[Objects], Objects] = same_objects,
    boxes: Callable[[np.ndarray], np.ndarray] = lambda boxes: boxes,
    suffix: str = ".bin",
) -> Path:
    """A KITTI folder of made-up frames, each passed through the given changes."""
    for folder in ("velodyne", "label_2", "calib"):
        (root / "training" / folder).mkdir(parents=True, exist_ok=True)
    for seed in range(FRAMES):
        cloud, truth = scene(seed)
        labels = objects_from_boxes(boxes(truth), LABELS, None, CALIBRATION)
        path = root / "training" / "velodyne" / f"{seed:06d}{suffix}"
        save_point_cloud(path, PointCloud(points(cloud)))
        write_objects(root / "training" / "label_2" / f"{seed:06d}.txt", objects(labels))
        write_calibration(root / "training" / "calib" / f"{seed:06d}.txt", CALIBRATION)
    return root


def complaints(report: DoctorReport) -> set[tuple[str, str]]:
    """Severity and check of everything above a note."""
    return {(item.severity, item.check) for item in report.findings if item.severity != "info"}


def message(report: DoctorReport, check: str) -> str:
    return " ".join(f"{item.message} {item.fix}" for item in report.findings if item.check == check)


def linear(*rows: tuple[float, float, float]) -> Callable[[np.ndarray], np.ndarray]:
    """Coordinates multiplied by a matrix, intensity kept."""
    return lambda points: np.column_stack([points[:, :3] @ np.array(rows).T, points[:, 3]]).astype(np.float32)


def scaled(factor: float) -> Callable[[np.ndarray], np.ndarray]:
    return linear((factor, 0, 0), (0, factor, 0), (0, 0, factor))


def each(change: Callable[[CameraObject], CameraObject]) -> Callable[[Objects], Objects]:
    return lambda objects: [change(item) for item in objects]


def moved(item: CameraObject, x: float, y: float, z: float) -> CameraObject:
    return replace(item, location=(item.location[0] + x, item.location[1] + y, item.location[2] + z))


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    return build(tmp_path)


def test_sound_data_set(sound: Path) -> None:
    seen: list[tuple[int, int]] = []
    report = examine_data_set(sound, on_frame=lambda done, count: seen.append((done, count)))
    assert complaints(report) == set()
    assert report.ok
    assert seen == [(done, FRAMES) for done in range(1, FRAMES + 1)]
    assert report.statistics.frames == FRAMES
    assert report.statistics.boxes == {"Car": 25, "Pedestrian": 5, "Cyclist": 5}
    assert report.statistics.points_per_box["Car"].low >= 200
    assert report.statistics.axes["x"].high == pytest.approx(60, abs=0.5)
    assert "Few boxes of class Car (25), Pedestrian (5), Cyclist (5)" in message(report, "classes")
    assert examine_data_set(sound / "training").ok


@pytest.mark.parametrize(
    ("points", "check", "words"),
    [
        (scaled(100), "units", "in centimetres"),
        (scaled(1000), "units", "in millimetres"),
        (scaled(1 / 0.3048), "units", "in feet"),
        (scaled(0.01), "units", "normalized"),
        (linear((0, -1, 0), (0, 0, -1), (1, 0, 0)), "axes", "camera axes"),
        (linear((0, -1, 0), (0, 0, 1), (-1, 0, 0)), "axes", "y seems to point up"),
        (linear((0, 0, 1), (0, 1, 0), (-1, 0, 0)), "axes", "x seems to point up"),
        (linear((1, 0, 0), (0, -1, 0), (0, 0, -1)), "axes", "z seems to point down"),
        (linear((-1, 0, 0), (0, -1, 0), (0, 0, 1)), "axes", "behind the sensor"),
        (linear((0, -1, 0), (1, 0, 0), (0, 0, 1)), "axes", "left of the sensor"),
        (linear((0, 1, 0), (-1, 0, 0), (0, 0, 1)), "axes", "right of the sensor"),
        (linear((1, 0, 0), (0, -1, 0), (0, 0, 1)), "axes", "mirrored"),
        (lambda points: points + np.float32([50000, 20000, 0, 0]), "origin", "map coordinates"),
    ],
)
def test_units_and_axes_of_the_scans(
    points: Callable[[np.ndarray], np.ndarray], check: str, words: str, tmp_path: Path
) -> None:
    report = examine_data_set(build(tmp_path, points=points))
    errors = {item.check for item in report.findings if item.severity == "error"}
    assert errors == {check}
    assert words in message(report, check)
    assert complaints(report) == {("error", check)}
    advised = report.to_dict()["options"]
    assert (advised == "") == (words in ("normalized", "map coordinates"))
    if advised:
        mended = examine_data_set(tmp_path, transform=report.transform)
        assert complaints(mended) == set()
        assert mended.to_dict()["options"] == advised


@pytest.mark.parametrize(
    ("objects", "expected", "words"),
    [
        (each(lambda item: moved(item, 0, -0.9, 0)), ("error", "floating"), "float 0.9"),
        (each(lambda item: moved(item, 0, 1.2, 0)), ("error", "floating"), "are sunk 1.1"),
        (each(lambda item: moved(item, 0, -item.height_m / 2, 0)), ("error", "floating"), "a box"),
        (each(lambda item: moved(item, 0, 0, 100)), ("error", "outside"), "farther than 2 m"),
        (each(lambda item: replace(item, rotation_y=float(np.degrees(item.rotation_y)))),
         ("error", "heading"), "degrees"),
        (each(lambda item: replace(item, rotation_y=item.rotation_y + np.pi / 2)),
         ("error", "heading"), "turned by 90 degrees"),
        (each(lambda item: replace(item, rotation_y=-item.rotation_y - np.pi)),
         ("error", "heading"), "sign"),
        (each(lambda item: replace(item, rotation_y=-item.rotation_y - np.pi / 2)),
         ("error", "heading"), "the yaw"),
        (each(lambda item: replace(item, length_m=item.width_m, width_m=item.length_m)),
         ("error", "sizes"), "length and width"),
        (each(lambda item: replace(item, height_m=item.length_m, length_m=item.height_m)),
         ("error", "sizes"), "length and height"),
        (each(lambda item: replace(item, height_m=100 * item.height_m, width_m=100 * item.width_m,
                                   length_m=100 * item.length_m)), ("error", "sizes"), "in centimetres"),
        (each(lambda item: replace(item, height_m=0.0)), ("error", "sizes"), "zero or negative"),
        (lambda items: [replace(items[0], length_m=9.0), *items[1:]], ("warning", "sizes"), "Car 9.00"),
        (each(lambda item: replace(item, type=item.type.lower())), ("error", "classes"), "calls 'Car'"),
        (lambda items: [*items[:-2], *(replace(item, type="Robot") for item in items[-2:])],
         ("warning", "classes"), "unknown class 'Robot'"),
        (lambda items: [item for item in items if item.type == "Car"], ("warning", "classes"),
         "No box of class Pedestrian, Cyclist"),
        (lambda items: [], ("error", "classes"), "no box"),
        (lambda items: [*items, items[0]], ("warning", "duplicates"), "twice"),
        (lambda items: [moved(items[0], 0, -1.5, 0), *items[1:]], ("warning", "floating"), "over 1 m above"),
    ],
)  # fmt: skip
def test_labels(
    objects: Callable[[Objects], Objects], expected: tuple[str, str], words: str, tmp_path: Path
) -> None:
    report = examine_data_set(build(tmp_path, objects=objects))
    assert complaints(report) == {expected}
    assert words in message(report, expected[1])


def test_boxes_beside_their_objects(tmp_path: Path) -> None:
    def sideways(boxes: np.ndarray) -> np.ndarray:
        """Into the space between objects and walls, just above the ground."""
        return boxes * np.array([1, 0, 1, 1, 1, 1, 1]) + np.array([0, 11, 0.1, 0, 0, 0, 0])

    report = examine_data_set(build(tmp_path, boxes=sideways))
    assert ("error", "no points") in complaints(report)
    assert complaints(report) <= {("error", "no points")}


def spoilt_rows(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(points: np.ndarray) -> np.ndarray:
        points = points.copy()
        points[::20, 1] = value
        return points

    return change


@pytest.mark.parametrize(
    ("points", "expected", "words"),
    [
        (spoilt_rows(np.nan), ("warning", "not finite"), "5.0%"),
        (spoilt_rows(np.inf), ("warning", "not finite"), "drops these points"),
        (lambda points: np.concatenate([points, points]), ("warning", "duplicates"), "50% of their points"),
        (lambda points: np.concatenate([points, np.zeros((900, 4), np.float32)]), ("warning", "duplicates"),
         "exactly at (0, 0, 0)"),
        (lambda points: points * np.float32([1, 1, 1, 0]), ("warning", "intensity"), "missing in 5 of 5"),
        (lambda points: points * np.float32([1, 1, 1, 0]) + np.float32([0, 0, 0, 0.5]),
         ("warning", "intensity"), "constant"),
        (lambda points: points - np.float32([0, 0, 0, 5]), ("error", "intensity"), "negative or above"),
        (lambda points: points[:50], ("warning", "empty"), "fewer than 100"),
        (lambda points: points[:0], ("error", "empty"), "5 of 5 frames have no usable point"),
    ],
)  # fmt: skip
def test_points(
    points: Callable[[np.ndarray], np.ndarray], expected: tuple[str, str], words: str, tmp_path: Path
) -> None:
    root = build(tmp_path, points=points, objects=same_objects)
    if words.startswith(("fewer", "5 of 5")):  # labels without points would rightly be reported as well
        for path in (root / "training" / "label_2").iterdir():
            path.unlink()
        (root / "training" / "label_2").rmdir()
    report = examine_data_set(root)
    assert complaints(report) == {expected}
    assert words in message(report, expected[1])


def test_intensity_of_bytes_is_a_note_and_mixed_ranges_are_an_error(tmp_path: Path) -> None:
    times_255 = np.float32([1, 1, 1, 255])
    root = build(tmp_path, points=lambda points: points * times_255)
    report = examine_data_set(root)
    assert complaints(report) == set()
    assert "0..255" in message(report, "intensity")
    save_point_cloud(root / "training" / "velodyne" / "000003.bin", PointCloud(scene(3)[0]))
    report = examine_data_set(root)
    assert complaints(report) == {("error", "intensity")}
    (finding,) = [item for item in report.findings if item.check == "intensity"]
    assert finding.frames == ("000003",)


def test_ground_at_zero_is_a_warning(tmp_path: Path) -> None:
    lift = np.float32([0, 0, -GROUND_M, 0])
    raised = build(
        tmp_path,
        points=lambda points: points + lift,
        boxes=lambda boxes: boxes + np.array([0, 0, 1.7, 0, 0, 0, 0]),
    )
    report = examine_data_set(raised)
    assert complaints(report) == {("warning", "ground")}
    assert "Add -1.69 m to z" in message(report, "ground")
    assert report.transform.options == "--sensor-height 0.01"
    assert complaints(examine_data_set(raised, transform=report.transform)) == set()


def test_mixed_ranges_of_intensity_are_mended_by_the_scale(tmp_path: Path) -> None:
    root = build(tmp_path, points=lambda points: points * np.float32([1, 1, 1, 255]))
    dim = scene(3)[0] * np.float32([1, 1, 1, 0.9])
    save_point_cloud(root / "training/velodyne/000003.bin", PointCloud(dim))
    report = examine_data_set(root)
    assert report.transform.options == "--intensity-scale 255"
    assert complaints(examine_data_set(root, transform=report.transform)) == set()


def test_columns_are_named_for_the_doctor_too(tmp_path: Path) -> None:
    root = build(tmp_path)
    for path in (root / "training" / "velodyne").iterdir():
        rows = np.fromfile(path, "<f4").reshape(-1, 4)
        timed = np.column_stack([rows, np.linspace(0, 0.1, len(rows))]).astype("<f4")
        timed.tofile(path)
    assert not examine_data_set(root).ok
    assert complaints(examine_data_set(root, columns="x,y,z,intensity,time")) == set()
    with pytest.raises(ValueError, match="columns must"):
        examine_data_set(root, columns="x,y")


def test_damaged_files_are_reported_and_the_rest_examined(sound: Path) -> None:
    folder = sound / "training"
    scan = folder / "velodyne" / "000000.bin"
    scan.write_bytes(scan.read_bytes()[:-3])
    (folder / "label_2" / "000001.txt").write_text("Car 1 2\n")
    (folder / "calib" / "000002.txt").write_text("P2: 1\n")
    report = examine_data_set(sound)
    assert complaints(report) == {("error", "unreadable")}
    findings = [item for item in report.findings if item.check == "unreadable"]
    assert [item.frames for item in findings] == [("000000",), ("000001",), ("000002",)]
    for item, words in zip(findings, ("truncated", "line 1: 3 fields", "key P2"), strict=True):
        assert words in item.message
    assert report.statistics.frames == FRAMES - 1


def test_many_damaged_files_are_summed_up(tmp_path: Path) -> None:
    for index in range(15):
        (tmp_path / f"{index:02d}.bin").write_bytes(b"123")
    report = examine_data_set(tmp_path)
    findings = [item for item in report.findings if item.check == "unreadable"]
    assert len(findings) == 11
    assert findings[-1].message == "5 more files are unreadable."


def test_files_without_counterpart(sound: Path) -> None:
    folder = sound / "training"
    (folder / "velodyne" / "000000.bin").unlink()
    (folder / "label_2" / "000001.txt").unlink()
    (folder / "calib" / "000002.txt").unlink()
    (sound / "ImageSets").mkdir()
    (sound / "ImageSets" / "val.txt").write_text("000001\n000009\n")
    report = examine_data_set(sound)
    assert complaints(report) == {("warning", "files"), ("error", "calibration"), ("error", "files")}
    frames = {item.message.split(" ", 1)[1]: item.frames for item in report.findings if item.check == "files"}
    assert set(frames.values()) == {("000000",), ("000001",), ("000009",)}


def test_one_empty_frame(sound: Path) -> None:
    (sound / "training" / "velodyne" / "000004.bin").write_bytes(b"")
    report = examine_data_set(sound)
    assert complaints(report) == {("warning", "empty")}


def test_camera_that_looks_aside(sound: Path) -> None:
    aside = replace(
        CALIBRATION, camera_from_lidar_raw=np.array([[1.0, 0, 0, 0], [0, 0, -1, 0], [0, 1, 0, 0]])
    )
    for path in (sound / "training" / "calib").iterdir():
        write_calibration(path, aside)
    report = examine_data_set(sound)
    assert "does not look along +x" in message(report, "calibration")


@pytest.mark.parametrize("suffix", [".npy", ".pcd", ".ply"])
def test_plain_folder_of_scans(suffix: str, tmp_path: Path) -> None:
    for seed in range(2):
        save_point_cloud(tmp_path / f"{seed}{suffix}", PointCloud(scene(seed)[0]))
    report = examine_data_set(tmp_path)
    assert complaints(report) == set()
    assert "only the scans were checked" in message(report, "labels")


def test_no_data_set(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        examine_data_set(tmp_path / "missing")
    with pytest.raises(DataError, match=r"bin"):
        examine_data_set(tmp_path)
    (tmp_path / "label_2").mkdir()
    with pytest.raises(DataError, match="no velodyne folder"):
        examine_data_set(tmp_path)
    (tmp_path / "velodyne").mkdir()
    assert complaints(examine_data_set(tmp_path)) == {("error", "empty")}


def test_sample_of_frames(sound: Path) -> None:
    report = examine_data_set(sound, max_frames=2)
    assert report.statistics.frames == 2
    assert "2 of 5 frames were" in message(report, "sample")
    with pytest.raises(ValueError, match="at least 1"):
        examine_data_set(sound, max_frames=0)


def test_report_as_dictionary_and_text(tmp_path: Path) -> None:
    report = examine_data_set(build(tmp_path, objects=each(lambda item: moved(item, 0, -0.9, 0))))
    record = json.loads(json.dumps(report.to_dict()))
    assert record["ok"] is False
    assert record["findings"][0]["check"] == "floating"
    assert record["statistics"]["boxes"]["Car"] == 25
    console = Console(width=120, record=True, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    console.print(format_report(report))
    console.file.close()
    text = console.export_text()
    assert "error [floating]" in text
    assert "1 error, 0 warnings" in text


@pytest.mark.skipif(not REAL.is_dir(), reason="no KITTI data (set SPARSIGHT_DATA)")
@pytest.mark.parametrize("folder", [pytest.param(".", marks=pytest.mark.slow), "training/velodyne"])
def test_real_data_is_sound(folder: str) -> None:
    report = examine_data_set(REAL / folder)
    assert complaints(report) == set()
