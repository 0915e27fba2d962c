"""``perceive track`` and ``perceive eval --tracking``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nuscenes_folder import write_nuscenes

from perception.data import CameraCalibration, objects_from_boxes, open_data_set
from perception.data.kitti import write_calibration
from perception.data.kitti.tracking import read_tracks
from perception.data.nuscenes import NuScenesDataSet
from perception.evaluate.box_table import BoxTable
from perception.evaluate.nuscenes.files import write_results
from perception.evaluate.nuscenes.judge import ego_positions, labels_of, samples_of
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
                    # MOTA leaves out the track of least score, which is to be one of the short sequence.
                    score = f"{random.normal(7, 1) - (sequence == '0003'):.3f}"
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
    assert measures["Car"]["hota"] > (0.8 if mode == "online" else 0.9)
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
        assert (done.status, "poses.txt: scan" in done.remarks) == (2, True)


def test_what_is_missing_is_named(perceive: Perceive, folder: Path, tmp_path: Path) -> None:
    (folder / "detections_other/Car/0003.txt").unlink()
    done = perceive("track", "--results", folder, "--out", tmp_path / "out")
    assert (done.status, "Car/0003.txt" in done.remarks) == (2, True)
    (folder / "detections_other/Car/0003.txt").write_text("0,1,2")
    done = perceive("track", "--results", folder, "--out", tmp_path / "out")
    assert (done.status, "line 1: 3 fields" in done.remarks) == (2, True)
    assert perceive("track", "--out", tmp_path / "out").status == 2
    done = perceive("track", "--results", tmp_path / "nowhere", "--out", tmp_path / "out")
    assert (done.status, "nowhere: no such file or folder" in done.remarks) == (2, True)


def test_scans(perceive: Perceive, scans: Path, tiny_weights: Path, tmp_path: Path) -> None:
    (tmp_path / "poses.txt").write_text("1 0 0 0 0 1 0 0 0 0 1 0\n" * 3)
    for mode in ("online", "global"):
        out = tmp_path / mode
        options = ["--weights", tiny_weights, "--out", out, "--poses", tmp_path / "poses.txt", "--mode", mode]
        options += ["--pictures"] * (mode == "global")
        done = perceive("track", scans, *options)
        assert done.status == 0
        assert "of 3 frames" in done.output
        records = [json.loads(line) for line in (out / "detections.jsonl").read_text().splitlines()]
        assert [record["frame"] for record in records] == ["street0", "street1", "street2"]
        for record in records:
            assert len(record["track_id"]) == len(record["boxes"]) == len(record["velocity"])
            assert Detections.from_dict(record).labels == record["labels"]
            assert "map_from_lidar" in record["pose"]
        assert (out / "street2.png").is_file() == (mode == "global")
        assert f"{out / 'player.html'}: 3 frames, " in done.output
        page = (out / "player.html").read_text()
        assert [f'"name":"street{number}"' in page for number in range(4)] == [True, True, True, False]
    assert perceive("track", scans, *options).status == 2


@pytest.fixture
def boxes_of_nuscenes(tmp_path: Path) -> tuple[Path, Path]:
    """A folder of two scenes, and what another detector found in it: its labels, a little off."""
    root = write_nuscenes(tmp_path / "nuscenes")
    data = open_data_set(root, having="labels")
    assert isinstance(data, NuScenesDataSet)
    tokens = list(samples_of(data).values())
    table = labels_of(data.tables, tokens, ego_positions(data.tables, tokens))
    boxes = table.boxes + np.random.default_rng(0).normal(0, 0.05, table.boxes.shape) * (table.boxes != 0)
    found = BoxTable(frame=table.frame, label=table.label, boxes=boxes, score=np.full(len(table), 0.8))
    write_results(tmp_path / "found.json", tokens, found)
    return root, tmp_path / "found.json"


@pytest.mark.parametrize("mode", ["online", "global"])
def test_a_nuscenes_result_file(
    mode: str, perceive: Perceive, boxes_of_nuscenes: tuple[Path, Path], tmp_path: Path
) -> None:
    root, found = boxes_of_nuscenes
    out = tmp_path / "out"
    options = ("--results", found, "--data", root, "--split", "all")
    done = perceive("track", *options, "--out", out, "--mode", mode)
    assert (done.status, "6 frames of 2 scenes" in done.output) == (0, True)
    told = json.loads((out / "results.json").read_text())["results"]
    assert len(told) == 6
    every = [box for boxes in told.values() for box in boxes]
    assert {box["tracking_name"] for box in every} == {"car", "bicycle"}
    assert len({box["tracking_id"] for box in every}) == 4
    judged = perceive("eval", "--data", root, "--split", "all", "--tracking", out / "results.json", "--json")
    measures = json.loads(judged.output)
    assert (measures["amota"], measures["id_switches"], measures["scenes"]) == (1.0, 0, 2)
    assert measures["classes"]["car"]["motp"] < 0.2
    table = perceive("eval", "--data", root, "--split", "all", "--tracking", out / "results.json")
    assert "AMOTA" in table.output
    again = tmp_path / "again"
    assert perceive("track", *options, "--out", again, "--mode", mode).status == 0
    assert (again / "results.json").read_bytes() == (out / "results.json").read_bytes()


def test_what_is_wrong_with_nuscenes_results_is_named(
    perceive: Perceive, boxes_of_nuscenes: tuple[Path, Path], folder: Path, tmp_path: Path
) -> None:
    root, found = boxes_of_nuscenes
    out = ("--out", tmp_path / "out")
    alone = perceive("track", "--results", found, *out)
    assert (alone.status, "--data FOLDER" in alone.remarks) == (2, True)
    content = json.loads(found.read_text())
    content["results"].popitem()
    found.write_text(json.dumps(content))
    options = ("--results", found, "--data", root, "--split", "all", *out)
    short = perceive("track", *options)
    assert (short.status, "no results for 1 of 6 samples" in short.remarks) == (2, True)
    assert perceive("track", *options, "--missing", "skip").status == 0
    judged = perceive("eval", "--data", root, "--split", "all", "--tracking", found)
    assert (judged.status, "no field 'tracking_name'" in judged.remarks) == (2, False)
    whole = ("eval", "--data", root, "--split", "all", "--missing", "skip", "--tracking", found)
    assert "no field 'tracking_name'" in perceive(*whole).remarks
    kitti = perceive("track", "--results", found, "--data", folder, "--split", "all", *out)
    assert kitti.status == 2
