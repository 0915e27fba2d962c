"""``demos/remember.py --data``: a labelled sequence tracked and remembered, answers checked by its labels."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from perception import PointCloud
from perception.data import CameraCalibration, objects_from_boxes
from perception.data.kitti import write_calibration
from perception.io import save_point_cloud

FRAMES = 30
#: Two cars that park, one that drives ahead of the sensor, which moves 0.5 m a frame along x.
PARKED = ((18.0, 4.0), (18.0, -6.0))


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    return importlib.import_module("remember")


@pytest.fixture
def sequence(tmp_path: Path) -> Path:
    folder = tmp_path / "drive"
    (folder / "velodyne_reduced").mkdir(parents=True)
    write_calibration(folder / "calib.txt", CameraCalibration.default())
    lines, poses, times = [], [], []
    for number in range(FRAMES):
        x = 0.5 * number
        ground = np.array([[10.0, 0, -1.7, 0], [40.0, 0, -1.7, 0]], np.float32)
        save_point_cloud(folder / f"velodyne_reduced/{number:06d}.bin", PointCloud(ground))
        places = [*((px - x, py) for px, py in PARKED), (12.0, 0.0)]
        boxes = np.array([[px, py, -0.9, 4, 1.7, 1.5, 0.1] for px, py in places], np.float32)
        items = objects_from_boxes(boxes, ["Car"] * 3, None, CameraCalibration.default())
        for track, item in enumerate(items):
            values = (item.alpha, *item.box_2d, item.height_m, item.width_m, item.length_m, *item.location)
            words = " ".join(f"{value:.6f}" for value in (*values, item.rotation_y))
            lines.append(f"{number} {track} Car 0 0 {words}")
        poses.append(f"1 0 0 {x} 0 1 0 0 0 0 1 0")
        times.append(f"{number / 10}")
    for name, rows in (("labels", lines), ("poses", poses), ("timestamps", times)):
        (folder / f"{name}.txt").write_text("\n".join(rows) + "\n")
    return folder


def test_answers_are_checked_against_the_labels(
    demo: ModuleType,
    sequence: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    words = ["--data", str(sequence), "--perfect", "--out", str(out), "--json"]
    words += ["--moving", str(out / "drive.gif")]
    monkeypatch.setattr("sys.argv", ["remember.py", *words])
    demo.main()
    report = json.loads(capsys.readouterr().out)
    ours, every = report["stores"]["by tracks"], report["stores"]["every box"]
    # Two that parked, each seen twice; the third drove there, and back.
    assert ours["memories"] == 4
    assert every["memories"] == report["tally"]["offered"] == 2 * 3 * FRAMES
    assert (ours["questions"]["right"], ours["questions"]["asked"]) == (8, 8)
    by_kind = every["questions"]["by_kind"]
    assert by_kind["how many"] == {"asked": 2, "right": 0}
    # A car that drove by is to it what it parks.
    assert by_kind["parked"] == {"asked": 3, "right": 2}
    tally = report["tally"]
    assert tally["held"] == 4
    assert tally["merged"] == 2
    page = (out / "remember.html").read_text()
    assert "remembered episode" in page
    assert "car moved 14 m" in page
    assert "The truth is that of the labels." in page
    assert "http" not in page
    assert (out / "remember.png").stat().st_size > 20_000
    with Image.open(out / "drive.gif") as moving:
        # Every other moment of the way there, and three answers that are held.
        assert moving.n_frames >= FRAMES // 2 + 3
        moving.seek(FRAMES // 2 - 1)
        shown = np.asarray(moving.convert("RGB"), int)
    blue = shown[..., 2] - shown[..., 0] > 80
    assert blue[:450].sum() > 300, "boxes of cars"


def test_a_moving_picture_needs_labels_and_a_name(
    demo: ModuleType, sequence: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (
        (["--moving", "a.webp"], "--moving needs --data"),
        (["--data", str(sequence), "--moving", "a.mp4"], "choose a name that ends in .webp or .gif"),
    ):
        monkeypatch.setattr("sys.argv", ["remember.py", *words])
        with pytest.raises(SystemExit):
            demo.main()
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "way", [[(0, 0), (60, 0)], [(0, 0), (0, 80)], [(5, 5), (5, 5)], [(0, 0), (30, 30), (0, 1)], [(0, 0)]]
)
def test_the_map_of_a_moving_picture_holds_the_way(demo: ModuleType, way: list[tuple[float, float]]) -> None:
    strip = sys.modules["drive.report.moving_picture"]._around(np.array(way, float))
    at = strip.pixels(np.array(way, float))
    assert ((at[:, 0] >= 0) & (at[:, 0] <= 1920)).all()
    assert (np.abs(at[:, 1] - strip.height / 2) <= strip.height / 2).all()


def test_a_sequence_without_poses_is_named(
    demo: ModuleType, sequence: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sequence / "poses.txt").unlink()
    monkeypatch.setattr("sys.argv", ["remember.py", "--data", str(sequence), "--perfect"])
    with pytest.raises(SystemExit, match="the sequence has no poses"):
        demo.main()
