"""``perceive track`` and ``perceive eval --tracking``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception.data import CameraCalibration, objects_from_boxes
from perception.data.kitti import write_calibration
from perception.data.kitti.tracking import read_tracks
from perception.types import Detections

Perceive = Callable[..., Any]
CALIBRATION = CameraCalibration.default()
FRAMES = {"0000": 25, "0003": 12}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two sequences of two cars that drive ahead and a pedestrian, with labels and boxes."""
    made = tmp_path / "tracking"
    for name in ("label_02", "detections_other/Car", "detections_other/Pedestrian", "calib"):
        (made / name).mkdir(parents=True)
    random = np.random.default_rng(0)
    for sequence, frames in FRAMES.items():
        labels: list[str] = []
        boxes: dict[str, list[str]] = {"Car": [], "Pedestrian": []}
        for frame in range(frames):
            rows = [
                [15 + 0.4 * frame, 3, -0.8, 4.2, 1.8, 1.5, 0.02],
                [30 - 0.2 * frame, -3, -0.8, 4.0, 1.7, 1.5, 3.1],
                [18, 7 - 0.1 * frame, -0.8, 0.8, 0.6, 1.8, -1.5],
            ]
            kinds = ["Car", "Car", "Pedestrian"]
            for track, item in enumerate(objects_from_boxes(rows, kinds, None, CALIBRATION)):
                size = item.height_m, item.width_m, item.length_m
                space = " ".join(f"{value:.4f}" for value in (*size, *item.location, item.rotation_y))
                pixels = [f"{value:.2f}" for value in item.box_2d]
                labels.append(f"{frame} {track} {item.type} 0 0 {item.alpha:.3f} {' '.join(pixels)} {space}")
                if random.random() < 0.9:
                    score = f"{random.normal(7, 1):.3f}"
                    numbers = [str(frame), "1", *pixels, score, *space.split(), f"{item.alpha:.3f}"]
                    boxes[item.type].append(",".join(numbers))
        (made / f"label_02/{sequence}.txt").write_text("\n".join(labels))
        for kind, lines in boxes.items():
            (made / f"detections_other/{kind}/{sequence}.txt").write_text("\n".join(lines))
        write_calibration(made / f"calib/{sequence}.txt", CALIBRATION)
    lengths = "".join(f"{name} empty 000000 {frames:06d}\n" for name, frames in FRAMES.items())
    (made / "seqmap.txt").write_text(lengths)
    return made


@pytest.mark.parametrize("mode", ["online", "delayed", "global"])
def test_boxes_of_another_detector(mode: str, perceive: Perceive, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = perceive("track", "--results", folder, "--out", out, "--mode", mode)
    assert (done.status, sorted(path.name for path in out.iterdir())) == (0, ["0000.txt", "0003.txt"])
    rows = read_tracks(out / "0000.txt")
    assert set(rows.type.tolist()) == {"Car", "Pedestrian"}
    assert len(set(rows.track_id.tolist())) == 3
    judged = perceive("eval", "--data", folder, "--tracking", out, "--json")
    measures = json.loads(judged.output)
    assert measures["Car"]["id_switches"] == 0
    assert measures["Car"]["mota"] > (0.6 if mode == "online" else 0.8)
    assert measures["Car"]["hota"] > (0.7 if mode == "online" else 0.8)
    assert measures["Pedestrian"]["mota"] > 0.6
    table = perceive("eval", "--data", folder, "--tracking", out, "--out", tmp_path / "eval")
    assert "sAMOTA" in table.output
    assert json.loads((tmp_path / "eval/metrics.json").read_text()) == measures


@pytest.mark.parametrize("place", ["poses/{}.txt", "{}/poses.txt", "poses.txt"])
def test_poses_beside_the_boxes(place: str, perceive: Perceive, folder: Path, tmp_path: Path) -> None:
    for name, frames in FRAMES.items():
        path = folder / place.format(name)
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as stream:
            stream.writelines(f"1 0 0 {0.5 * frame} 0 1 0 0 0 0 1 0\n" for frame in range(frames))
    assert perceive("track", "--results", folder, "--out", tmp_path / "posed").status == 0
    rows = read_tracks(tmp_path / "posed/0003.txt")
    assert len(set(rows.track_id.tolist())) == 3
    if place == "poses.txt":
        path.write_text("1 0 0 0 0 1 0 0 0 0 1 0\n")
        done = perceive("track", "--results", folder, "--out", tmp_path / "short")
        assert (done.status, "poses.txt: 1 poses" in done.remarks) == (2, True)


def test_what_is_missing_is_named(perceive: Perceive, folder: Path, tmp_path: Path) -> None:
    (folder / "detections_other/Car/0003.txt").unlink()
    done = perceive("track", "--results", folder, "--out", tmp_path / "out")
    assert (done.status, "Car/0003.txt" in done.remarks) == (2, True)
    (folder / "detections_other/Car/0003.txt").write_text("0,1,2")
    done = perceive("track", "--results", folder, "--out", tmp_path / "out")
    assert (done.status, "line 1: 3 fields" in done.remarks) == (2, True)
    assert perceive("track", "--out", tmp_path / "out").status == 2


def test_scans(perceive: Perceive, scans: Path, tiny_weights: Path, tmp_path: Path) -> None:
    (tmp_path / "poses.txt").write_text("1 0 0 0 0 1 0 0 0 0 1 0\n" * 3)
    for mode in ("online", "global"):
        out = tmp_path / mode
        options = ["--weights", tiny_weights, "--out", out, "--poses", tmp_path / "poses.txt", "--mode", mode]
        done = perceive("track", scans, *options)
        assert done.status == 0
        assert "of 3 frames" in done.output
        records = [json.loads(line) for line in (out / "detections.jsonl").read_text().splitlines()]
        assert [record["frame"] for record in records] == ["street0", "street1", "street2"]
        for record in records:
            assert len(record["track_id"]) == len(record["boxes"]) == len(record["velocity"])
            assert Detections.from_dict(record).labels == record["labels"]
            assert "map_from_lidar" in record["pose"]
        assert (out / "street2.png").read_bytes().startswith(b"\x89PNG")
    assert perceive("track", scans, *options).status == 2
