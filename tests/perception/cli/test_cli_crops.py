"""``perceive detect --crops``: objects cut out of the camera's pictures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from perception.data import CameraCalibration, objects_from_boxes
from perception.data.kitti import write_calibration

Perceive = Callable[..., Any]
SIZE = (1242, 375)


def picture(path: Path) -> None:
    """Redder to the right, greener down, so that a crop tells where it is from."""
    path.parent.mkdir(exist_ok=True)
    pixels = np.zeros((SIZE[1], SIZE[0], 3), np.uint8)
    pixels[..., 0] = np.arange(SIZE[0]) * 255 // SIZE[0]
    pixels[..., 1] = (np.arange(SIZE[1]) * 255 // SIZE[1])[:, None]
    Image.fromarray(pixels).save(path)


@pytest.fixture
def training(kitti_folder: Path, tmp_path: Path) -> Path:
    """The first two streets, the first with a picture."""
    folder = tmp_path / "kitti/training"
    for part in ("velodyne", "calib", "label_2"):
        (folder / part).mkdir(parents=True)
        for name in ("000000", "000001"):
            (file,) = (kitti_folder / "training" / part).glob(f"{name}.*")
            shutil.copy(file, folder / part)
    picture(folder / "image_2/000000.png")
    return folder


@pytest.fixture
def detect(perceive: Perceive, training: Path, tiny_weights: Path, tmp_path: Path) -> Callable[..., Any]:
    """Detect in the two streets, or in what is named; the records come too."""

    def run(*options: object, scans: Path | None = None) -> Any:
        done = perceive(
            "detect", scans or training / "velodyne", "--out", tmp_path / "out", "--overwrite",
            "--no-pictures", "--no-places", "--weights", tiny_weights, "--score", 0, *options,
        )  # fmt: skip
        path = tmp_path / "out/detections.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return done, [json.loads(line) for line in lines]

    return run


def test_each_object_that_is_seen_has_a_picture_of_its_place(
    detect: Callable[..., Any], tmp_path: Path
) -> None:
    done, (first, second) = detect("--crops", "--crop-pixels", 80)
    assert done.status == 0
    objects = objects_from_boxes(
        first["boxes"], first["labels"], None, CameraCalibration.default(), image_size=SIZE
    )
    assert len(first["crops"]) == len(first["boxes"])
    for row, (name, item) in enumerate(zip(first["crops"], objects, strict=True)):
        left, top, right, bottom = item.box_2d
        seen = item.truncated <= 0.5 and min(right - left, bottom - top) >= 80
        assert name == (f"crops/000000-{row:03d}.jpg" if seen else None)
        if not seen:
            continue
        with Image.open(tmp_path / "out" / name) as crop:
            red, green, _ = np.asarray(crop).reshape(-1, 3).mean(axis=0)
            assert crop.width >= right - left
        # A margin that is cut off at the border shifts the middle.
        assert red / 255 * SIZE[0] == pytest.approx((left + right) / 2, abs=4 + 0.1 * (right - left))
        assert green / 255 * SIZE[1] == pytest.approx((top + bottom) / 2, abs=4 + 0.1 * (bottom - top))
    kept = [name for name in first["crops"] if name]
    assert 0 < len(kept) < len(first["crops"])
    assert sorted(path.name for path in (tmp_path / "out/crops").iterdir()) == sorted(
        Path(name).name for name in kept
    )
    assert "crops" not in second
    assert f"pictures of {len(kept)} of {len(first['crops'])} objects" in done.remarks
    assert "smaller than 80 pixels (--crop-pixels)" in done.remarks
    assert "1 scan without a picture" in done.remarks


def test_pictures_and_calibration_from_elsewhere(
    detect: Callable[..., Any], training: Path, tmp_path: Path
) -> None:
    _, (inside, _) = detect("--crops", scans=training / "velodyne")
    alone, pictures = tmp_path / "alone", tmp_path / "pictures"
    alone.mkdir()
    shutil.copy(training / "velodyne/000000.bin", alone)
    done, (record,) = detect("--crops", scans=alone)
    assert "crops" not in record
    assert "1 scan without a picture" in done.remarks
    picture(pictures / "000000.png")
    done, (record,) = detect("--crops", "--images", pictures, scans=alone)
    assert "crops" not in record
    assert "1 scan without a calibration" in done.remarks
    write_calibration(tmp_path / "calib.txt", CameraCalibration.default())
    for calibration in (tmp_path / "calib.txt", training / "calib"):
        done, (record,) = detect("--crops", "--images", pictures, "--calibration", calibration, scans=alone)
        assert record["crops"] == inside["crops"]


def test_a_picture_that_cannot_be_read_is_named(detect: Callable[..., Any], training: Path) -> None:
    (training / "image_2/000000.png").write_bytes(b"no picture")
    done, records = detect("--crops")
    assert done.status == 1
    assert "000000.png: no" in done.remarks
    assert [record["frame"] for record in records] == ["000001"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--images", "."), "--images needs --crops"),
        (("--crop-pixels", 9), "--crop-pixels needs --crops"),
        (("--crops", "--crop-pixels", 0), "--crop-pixels must be at least 1, got 0"),
        (("--crops", "--images", "none"), "none: no such folder"),
        (("--crops", "--images", "empty"), "empty: no picture in this folder"),
        (("--crops", "--calibration", "none.txt"), "none.txt: reading failed"),
    ],
)
def test_bad_options(
    detect: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    done, records = detect(*options)
    assert (done.status, records) == (2, [])
    assert message in done.remarks


def test_crops_need_a_folder(perceive: Perceive, training: Path) -> None:
    done = perceive("detect", training / "velodyne", "--json", "--crops")
    assert (done.status, done.output) == (2, "")
    assert "--crops needs --out" in done.remarks
