"""``perceive detect``: files in, records and pictures out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from perception.boxes import rotated_iou_bev
from perception.checkpoints.weights import WEIGHTS_DIRECTORY
from perception.data import open_data_set
from perception.run.precision import has_bfloat16
from perception.train.data.frames import TrainingFrame

Street = Callable[[int], TrainingFrame]
Perceive = Callable[..., Any]


@pytest.fixture
def scan(street: Street, tmp_path: Path) -> Path:
    path = tmp_path / "scans" / "street.bin"
    path.parent.mkdir()
    street(0).points.astype("<f4").tofile(path)
    return path


def test_precision(perceive: Perceive, scan: Path, tiny_weights: Path, tmp_path: Path) -> None:
    options = ["--out", tmp_path / "out", "--weights", tiny_weights, "--no-pictures", "--precision"]
    refused = perceive("detect", scan, *options, "float16")
    assert refused.status != 0
    assert "precision='float16' is not supported here" in refused.remarks
    asked = "bfloat16" if has_bfloat16() else "float32"
    assert perceive("detect", scan, *options, asked).status == 0


def records_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "detections.jsonl").read_text().splitlines()]


def test_one_file(perceive: Perceive, scan: Path, tiny_weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = perceive("detect", scan, "--out", out, "--weights", tiny_weights, "--score", 0.0)
    assert done.status == 0
    assert "street" in done.output
    assert "1 of 1 frame in" in done.output
    (record,) = records_of(out)
    assert record["frame"] == "street"
    assert record["source"] == str(scan)
    assert record["elapsed_ms"] > 0
    count = len(record["boxes"])
    assert count == len(record["scores"]) == len(record["labels"]) > 0
    assert all(len(box) == 7 for box in record["boxes"])
    assert f"{count} objects" in done.output
    picture = imread(out / "street.png")
    assert min(picture.shape[:2]) > 200
    assert np.ptp(picture[..., :3]) > 0.3
    page = (out / "player.html").read_text()
    assert page.lstrip().lower().startswith("<!doctype html")
    assert 'src="http' not in page
    assert sorted(path.name for path in out.iterdir()) == ["detections.jsonl", "player.html", "street.png"]


def test_many_scans_have_no_tables(
    perceive: Perceive, scan: Path, tiny_weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perception.cli.detect.command._MOST_TABLES", 1)
    shutil.copy(scan, scan.with_name("other.bin"))
    options = ["--weights", tiny_weights, "--score", 0.0, "--no-pictures"]
    one = perceive("detect", scan, "--out", tmp_path / "one", *options)
    two = perceive("detect", scan.parent, "--out", tmp_path / "two", *options)
    assert " objects, " in one.output
    assert " objects, " not in two.output
    assert "2 of 2 frames" in two.output
    assert len(records_of(tmp_path / "two")) == 2


def test_json_and_no_pictures(perceive: Perceive, scan: Path, tiny_weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = perceive("detect", scan.parent, "--out", out, "--weights", tiny_weights, "--json", "--no-pictures")
    assert done.status == 0
    assert [json.loads(line) for line in done.output.splitlines()] == records_of(out)
    assert [path.name for path in out.iterdir()] == ["detections.jsonl"]


def test_stages_are_timed(perceive: Perceive, scan: Path, tiny_weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = perceive("detect", scan, "--out", out, "--weights", tiny_weights, "--no-pictures", "--profile")
    assert done.status == 0
    assert "median of 10" in done.output
    (record,) = records_of(out)
    assert {"pillars", "backbone", "NMS"} <= set(record["stages_ms"])


def test_the_score_option(perceive: Perceive, scan: Path, tiny_weights: Path, tmp_path: Path) -> None:
    arguments = ("detect", scan, "--out", tmp_path, "--weights", tiny_weights, "--json", "--no-pictures")
    arguments += ("--overwrite",)
    assert json.loads(perceive(*arguments, "--score", 1.0).output)["boxes"] == []
    assert len(json.loads(perceive(*arguments, "--score", 0.0).output)["boxes"]) > 0
    with pytest.raises(SystemExit, match="2"):
        perceive(*arguments, "--score", 1.5)


def test_the_range_option(perceive: Perceive, scan: Path, tiny_weights: Path, tmp_path: Path) -> None:
    arguments = ("detect", scan, "--out", tmp_path, "--weights", tiny_weights, "--json", "--no-pictures")
    arguments += ("--overwrite", "--score", 0.0)
    for given in ("none", "-16,-16,-3,16,16,1"):
        assert len(json.loads(perceive(*arguments, f"--range={given}").output)["boxes"]) > 0
    for given, message in (
        ("1,2", "--range must be 'none' or six numbers"),
        ("0,0,0,nan,1,1", "--range X0,Y0,Z0,X1,Y1,Z1 needs"),
        ("0,0,-3,1,1,1", "pillars.range_m must be a multiple of 8 pillars"),
    ):
        done = perceive(*arguments, f"--range={given}")
        assert done.status == 2
        assert message in done.remarks


def test_an_empty_scan_has_no_boxes(perceive: Perceive, tiny_weights: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.bin").write_bytes(b"")
    out = tmp_path / "out"
    done = perceive("detect", tmp_path / "empty.bin", "--out", out, "--weights", tiny_weights)
    assert done.status == 0
    assert records_of(out)[0]["boxes"] == []
    assert (out / "empty.png").is_file()
    assert (out / "player.html").is_file()


def test_ground_truth_beside_the_scan(
    perceive: Perceive, kitti_folder: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    path = kitti_folder / "training/velodyne/000000.bin"
    done = perceive("detect", path, "--out", tmp_path / "with", "--weights", tiny_weights, "--score", 1.0)
    alone = tmp_path / "000000.bin"
    shutil.copy(path, alone)
    other = perceive(
        "detect", alone, "--out", tmp_path / "without", "--weights", tiny_weights, "--score", 1.0
    )
    assert done.status == other.status == 0
    pictures = [imread(tmp_path / folder / "000000.png") for folder in ("with", "without")]
    assert pictures[0].shape != pictures[1].shape or not np.array_equal(*pictures)


def test_missing_file(perceive: Perceive, tiny_weights: Path, tmp_path: Path) -> None:
    done = perceive("detect", tmp_path / "none.bin", "--out", tmp_path, "--weights", tiny_weights)
    assert done.status == 2
    assert "none.bin: no such file" in done.remarks
    assert done.output == ""


def test_one_bad_file_does_not_stop_the_others(
    perceive: Perceive, scan: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    (scan.parent / "broken.bin").write_bytes(scan.read_bytes()[:-3])
    out = tmp_path / "out"
    done = perceive("detect", scan.parent, "--out", out, "--weights", tiny_weights, "--no-pictures")
    assert done.status == 1
    assert "1 of 2 frames" in done.output
    assert f"skipped: {scan.parent / 'broken.bin'}: truncated" in done.remarks
    assert [record["frame"] for record in records_of(out)] == ["street"]


def test_equal_names_are_kept_apart(
    perceive: Perceive, scan: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    other = tmp_path / "others"
    other.mkdir()
    shutil.copy(scan, other / "street.bin")
    out = tmp_path / "out"
    perceive("detect", scan, other, "--out", out, "--weights", tiny_weights, "--no-pictures")
    assert [record["frame"] for record in records_of(out)] == ["scans-street", "others-street"]


def test_points_that_are_not_finite_are_reported(
    perceive: Perceive, street: Street, tiny_weights: Path, tmp_path: Path
) -> None:
    points = street(0).points.copy()
    points[0, 0] = np.nan
    points.astype("<f4").tofile(tmp_path / "nan.bin")
    done = perceive("detect", tmp_path / "nan.bin", "--out", tmp_path, "--weights", tiny_weights)
    assert done.status == 0
    assert "points" in done.output


SPOILT: dict[str, tuple[Callable[[np.ndarray], np.ndarray], tuple[str, ...]]] = {
    "millimetres": (lambda points: points * np.float32([1000, 1000, 1000, 1]), ("--scale", "0.001")),
    "upside down": (lambda points: points * np.float32([1, -1, -1, 1]), ("--axes", "x,-y,-z")),
    "camera axes": (
        lambda points: points[:, [1, 2, 0, 3]] * np.float32([-1, -1, 1, 1]),
        ("--axes", "z,-x,-y"),
    ),
    "ground at zero": (lambda points: points + np.float32([0, 0, 1.73, 0]), ("--sensor-height", "0.02")),
    "a sensor 3 m up": (lambda points: points - np.float32([0, 0, 1.27, 0]), ("--sensor-height", "2.99")),
    "all of it": (
        lambda points: 1000 * (points + np.float32([0, 0, 1.73, 0]))[:, [1, 2, 0, 3]]
        * np.float32([-1, -1, 1, 0.255]),
        ("--scale", "0.001", "--axes", "z,-x,-y", "--sensor-height", "0.01", "--intensity-scale", "255"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILT)
def test_doubtful_scans_are_named_once_with_the_options_that_mend_them(
    perceive: Perceive, street: Street, tiny_weights: Path, tmp_path: Path, name: str
) -> None:
    change, options = SPOILT[name]
    folder, sound = tmp_path / "scans", tmp_path / "sound"
    folder.mkdir()
    sound.mkdir()
    for number in range(3):
        points = street(number).points
        points.astype("<f4").tofile(sound / f"{number}.bin")
        change(points).astype("<f4").tofile(folder / f"{number}.bin")
    arguments = ("--weights", tiny_weights, "--no-pictures")
    doubted = perceive("detect", folder, "--out", tmp_path / "doubted", *arguments)
    assert doubted.status == 0
    for option in options[::2]:
        if option != "--intensity-scale":  # the reader divides by 255 itself
            assert doubted.remarks.count(option) == 1, doubted.remarks
    assert all(record["warnings"] for record in records_of(tmp_path / "doubted"))
    report = json.loads(perceive("doctor", folder, "--json").output)
    advised = report["options"].split()
    assert advised[::2] == [option for option in options[::2] if option != "--intensity-scale"]
    mended = perceive("detect", folder, "--out", tmp_path / "mended", *arguments, *options)
    perceive("detect", sound, "--out", tmp_path / "sound_out", *arguments)
    assert "warning" not in mended.output
    assert perceive("doctor", folder, *advised, "--json").status == 0
    for ours, theirs in zip(records_of(tmp_path / "mended"), records_of(tmp_path / "sound_out"), strict=True):
        assert ours["labels"] == theirs["labels"]
        boxes, expected = np.array(ours["boxes"]).reshape(-1, 7), np.array(theirs["boxes"]).reshape(-1, 7)
        # Boxes are told in metres, x forward and z up, from the sensor's own height.
        expected[:, 2] += {"ground at zero": 1.73, "all of it": 1.73, "a sensor 3 m up": -1.27}.get(name, 0)
        np.testing.assert_allclose(boxes, expected, atol=0.05)


def test_nuscenes_columns_and_axes(
    perceive: Perceive, street: Street, tiny_weights: Path, tmp_path: Path
) -> None:
    points = street(0).points
    turned = np.column_stack(
        [-points[:, 1], points[:, 0], points[:, 2], (255 * points[:, 3]).round(), np.arange(len(points)) % 32]
    )
    turned.astype("<f4").tofile(tmp_path / "sweep.pcd.bin")
    points[:, 3] = (255 * points[:, 3]).round() / 255
    points.astype("<f4").tofile(tmp_path / "street.bin")
    arguments = ("--weights", tiny_weights, "--no-pictures", "--score", 0.0)
    told = perceive("detect", tmp_path / "sweep.pcd.bin", "--out", tmp_path / "a", *arguments)
    assert "assumed nuScenes axes" in told.remarks
    found = [
        perceive("detect", path, "--out", tmp_path / path.name[:2], *arguments, "--json", *options)
        for path, options in (
            (tmp_path / "sweep.pcd.bin", ("--axes", "y,-x,z", "--columns", "5", "--intensity-scale", 255)),
            (tmp_path / "sweep.pcd.bin", ("--overwrite",)),
            (tmp_path / "street.bin", ("--sensor-height", 1.84)),
            (tmp_path / "street.bin", ("--overwrite",)),
        )
    ]
    given, by_name, raised, plain = (json.loads(done.output) for done in found)
    assert all("reached its limit" in warning for warning in given["warnings"])  # Of random weights.
    for ours, theirs in ((given, plain), (by_name, raised)):
        assert ours["labels"] == theirs["labels"]
        np.testing.assert_allclose(ours["boxes"], theirs["boxes"], atol=1e-3)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--scale", "0", "scale must be a positive number"),
        ("--scale", "nan", "scale must be a positive number"),
        ("--axes", "x,y", "axes must name"),
        ("--axes", "x,x,z", "axes must name"),
        ("--sensor-height", "inf", "sensor_height_m must be a finite number"),
        ("--intensity-scale", "-1", "intensity_scale must be a positive number"),
        ("--columns", "x,y", "columns must"),
    ],
)
@pytest.mark.parametrize("command", ["detect", "doctor"])
def test_options_that_cannot_be(
    perceive: Perceive, scan: Path, tmp_path: Path, command: str, option: str, value: str, message: str
) -> None:
    rest = ("--out", tmp_path / "out") if command == "detect" else ()
    done = perceive(command, scan.parent, *rest, option, value)
    assert done.status == 2
    assert message in done.remarks
    assert not (tmp_path / "out").exists()


DAMAGED = {
    "cut.npy": b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'shape': (2,",
    "huge.npy": b"\x93NUMPY\x01\x00v\x00"
    + b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 4), }".ljust(117)
    + b"\n",
    "long.pcd": b"FIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nWIDTH " + b"9" * 5000 + b"\nDATA ascii\n",
    "text.ply": b"ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\n",
}


def test_damaged_files_of_every_kind_are_named_and_the_rest_is_detected(
    perceive: Perceive, scan: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    for name, data in DAMAGED.items():
        (scan.parent / name).write_bytes(data)
    out = tmp_path / "out"
    done = perceive("detect", scan.parent, "--out", out, "--weights", tiny_weights, "--no-pictures")
    assert done.status == 1
    assert "1 of 5 frames" in done.output
    for name in DAMAGED:
        assert f"skipped: {scan.parent / name}: " in done.remarks
    assert [record["frame"] for record in records_of(out)] == ["street"]
    report = perceive("doctor", scan.parent, "--json")
    assert report.status == 1
    unreadable = [item for item in json.loads(report.output)["findings"] if item["check"] == "unreadable"]
    assert sorted(item["frames"][0] for item in unreadable) == sorted(Path(name).stem for name in DAMAGED)


def test_records_of_an_earlier_run_are_kept(
    perceive: Perceive, scans: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    arguments = ("--out", tmp_path / "out", "--weights", tiny_weights, "--no-pictures")
    assert perceive("detect", scans / "street0.bin", *arguments).status == 0
    path = tmp_path / "out/detections.jsonl"
    before = path.read_bytes()
    refused = perceive("detect", scans, *arguments)
    assert refused.status == 2
    assert "detections.jsonl" in refused.remarks
    assert path.read_bytes() == before
    # A line that was cut off by an interruption is written again.
    path.write_bytes(before + b'{"frame": "street1", "sou')
    resumed = perceive("detect", scans, *arguments, "--resume")
    assert resumed.status == 0
    assert "2 of 2 frames" in resumed.output
    assert "1 from an earlier run" in resumed.output
    assert path.read_bytes().startswith(before)
    assert [record["frame"] for record in records_of(tmp_path / "out")] == ["street0", "street1", "street2"]
    assert "0 of 0 frames" in perceive("detect", scans, *arguments, "--resume").output
    assert perceive("detect", scans / "street1.bin", *arguments, "--overwrite").status == 0
    assert [record["frame"] for record in records_of(tmp_path / "out")] == ["street1"]


def test_the_page_of_a_run_that_went_on_has_all_frames(
    perceive: Perceive, scans: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    arguments = ("--out", tmp_path / "out", "--weights", tiny_weights)
    done = perceive("detect", scans, *arguments)
    assert "player.html: 3 frames, " in done.output
    page = tmp_path / "out/player.html"
    whole = page.read_bytes()
    for kept in (1, 3):
        records = (tmp_path / "out/detections.jsonl").read_bytes().splitlines(keepends=True)
        (tmp_path / "out/detections.jsonl").write_bytes(b"".join(records[:kept]))
        page.unlink()
        assert perceive("detect", scans, *arguments, "--resume").status == 0
        assert page.read_bytes() == whole


def test_records_that_cannot_be_read_are_left_alone(
    perceive: Perceive, scans: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    (tmp_path / "detections.jsonl").write_text("my notes\n")
    done = perceive("detect", scans, "--out", tmp_path, "--weights", tiny_weights, "--resume")
    assert done.status == 2
    assert "detections.jsonl: line 1 is no" in done.remarks
    assert (tmp_path / "detections.jsonl").read_text() == "my notes\n"


@pytest.mark.parametrize("weights", ["no-such-weights", "broken.safetensors"])
def test_weights_that_cannot_be_used(perceive: Perceive, scan: Path, tmp_path: Path, weights: str) -> None:
    (tmp_path / "broken.safetensors").write_bytes(b"x" * 100)
    name = weights if weights.startswith("no") else tmp_path / weights
    done = perceive("detect", scan, "--out", tmp_path / "out", "--weights", name)
    assert done.status == 2
    assert weights in done.remarks
    assert "Traceback" not in done.remarks
    assert not (tmp_path / "out").exists()


def test_bad_usage(perceive: Perceive, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["detect"], ["detect", "a.bin", "--out", "o", "--device", "tpu"], ["fly"]):
        with pytest.raises(SystemExit) as stopped:
            perceive(*arguments)
        assert stopped.value.code == 2
        assert "usage: perceive" in capsys.readouterr().err


def test_a_file_where_a_folder_is_needed(
    perceive: Perceive, scan: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    (tmp_path / "notes").write_text("mine")
    for out in (tmp_path / "notes", tmp_path / "notes/detections"):
        done = perceive("detect", scan, "--out", out, "--weights", tiny_weights, "--no-pictures")
        assert done.status == 2
        assert "there is a file where a folder is needed; use another folder" in done.remarks
        assert "Errno" not in done.remarks
    assert (tmp_path / "notes").read_text() == "mine"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("name", ["player.html", "detections.jsonl", "street0.png"])
def test_a_full_disk_names_the_file_and_resumes(
    name: str, perceive: Perceive, scans: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / name).symlink_to("/dev/full")
    command = (
        "detect",
        scans / "street0.bin",
        "--out",
        out,
        "--weights",
        tiny_weights,
        "--start",
        "2026-01-01",
    )
    done = perceive(*command)
    assert done.status == 2
    assert done.remarks == (
        f"perceive detect: Disk full while writing {out / name}. Free space, then rerun with --resume.\n"
    )
    (out / name).unlink()
    assert perceive(*command, "--resume").status == 0
    assert sorted(path.name for path in out.iterdir()) == ["detections.jsonl", "player.html", "street0.png"]
    assert (out / "player.html").read_text().endswith("</html>\n")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="the system has no /dev/zero")
@pytest.mark.parametrize("options", [("--parquet", "--no-pictures"), ("--workers", 1)])
def test_records_are_not_read_back_from_a_device(
    options: tuple[object, ...], perceive: Perceive, scans: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    if "--parquet" in options:
        pytest.importorskip("pyarrow")
    (tmp_path / "detections.jsonl").symlink_to("/dev/zero")
    done = perceive("detect", scans, "--out", tmp_path, "--weights", tiny_weights, *options)
    assert done.status == 2
    told = f"{tmp_path / 'detections.jsonl'} is a device or pipe"
    assert told in done.remarks


def test_the_systems_errors_name_a_way_out(
    perceive: Perceive, scan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(options: object) -> int:
        raise PermissionError(13, "Permission denied", "/locked")

    monkeypatch.setattr("perception.cli.detect.command.run", refuse)
    done = perceive("detect", scan, "--out", tmp_path / "out")
    assert done.status == 2
    assert "perceive detect: /locked: no permission" in done.remarks


def test_a_checkpoint_is_no_weights(perceive: Perceive, scan: Path, tmp_path: Path) -> None:
    torch.save({"step": 1}, tmp_path / "checkpoint.pt")
    done = perceive("detect", scan, "--out", tmp_path / "out", "--weights", tmp_path / "checkpoint.pt")
    assert done.status == 2
    assert "writes weights.safetensors" in done.remarks
    assert "fetch" not in done.remarks


@pytest.mark.slow
@pytest.mark.skipif(
    not (WEIGHTS_DIRECTORY / "pointpillars-kitti.safetensors").is_file(), reason="weights are not shipped yet"
)
def test_the_shipped_weights_find_near_cars(perceive: Perceive, data_directory: Path, tmp_path: Path) -> None:
    data_set = open_data_set(data_directory / "kitti", "val")
    frame_ids = data_set.frame_ids[:8]
    paths = [data_set.frame(frame_id).source for frame_id in frame_ids]
    assert perceive("detect", *paths, "--out", tmp_path, "--score", 0.2).status == 0
    page = (tmp_path / "player.html").read_text()
    near = found = 0
    for record, frame_id in zip(records_of(tmp_path), frame_ids, strict=True):
        assert f'"name":"{frame_id}"' in page
        frame = data_set.frame(frame_id)
        clear = [entry for entry in frame.objects if entry.type != "DontCare"]
        for entry, box in zip(clear, frame.boxes, strict=True):
            if entry.type != "Car" or entry.occluded > 1 or np.hypot(box[0], box[1]) >= 30:
                continue
            cars = [
                candidate
                for candidate, label in zip(record["boxes"], record["labels"], strict=True)
                if label == "Car"
            ]
            near += 1
            overlap = rotated_iou_bev(box[None], np.array(cars).reshape(-1, 7))
            found += bool((overlap > 0.5).any())
    assert near >= 10
    assert found / near > 0.7, f"{found} of {near}"
