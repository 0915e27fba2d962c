"""``perceive track`` on scans: recordings with their poses, viewers, and runs that go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nuscenes_folder import KEYS, write_nuscenes

from perception.train.data.frames import TrainingFrame
from perception.types import Detections, PointCloud
from perception.visualise.recording import RecordingMoment
from perception.visualise.recordings import open_recordings

Perceive = Callable[..., Any]
Street = Callable[[int], TrainingFrame]
FRAMES = 3
START_NS = 1_700_000_000 * 10**9
#: What differs between two runs.
_TIMES = ("detected_ns", "elapsed_ms")


def records_of(out: Path, name: str = "detections.jsonl") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / name).read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in _TIMES} for line in lines]


@pytest.fixture
def drive(street: Street, tmp_path: Path) -> Path:
    """An MCAP file of a street seen from a sensor that moves, with poses."""
    pytest.importorskip("foxglove", reason="the Foxglove SDK is not installed (extra 'foxglove')")
    path, points = tmp_path / "drive.mcap", street(0).points
    with open_recordings(mcap=path, title="a drive") as recordings:
        for k in range(FRAMES):
            pose = np.eye(4)
            pose[0, 3] = 0.5 * k
            moment = RecordingMoment(k, START_NS + k * 10**8)
            recordings.scan(PointCloud(points), Detections.empty(), moment, map_from_lidar=pose)
    return path


def detected_before(drive: Path, out: Path) -> None:
    """What an earlier run found in the drive: a car that stands, seen nearer and nearer."""
    out.mkdir()
    with (out / "boxes.jsonl").open("w") as stream:
        for k in range(FRAMES):
            box = np.array([[20.0 - 0.5 * k, 2.0, -0.8, 4.2, 1.8, 1.5, 0.1]], np.float32)
            found = Detections(box, np.array([0.9], np.float32), ["Car"], source=f"{drive}:/points#{k}")
            pose = np.eye(4)
            pose[0, 3] = 0.5 * k
            own = {"time_ns": START_NS + k * 10**8, "pose": {"map_from_lidar": pose[:3].tolist()}}
            stream.write(json.dumps({"frame": f"drive-{k:06d}", **found.to_dict()} | own) + "\n")


@pytest.mark.parametrize("mode", ["online", "global"])
def test_identities_and_trails_in_viewers(mode: str, perceive: Perceive, drive: Path, tmp_path: Path) -> None:
    chunk = pytest.importorskip("rerun.chunk")
    reader = pytest.importorskip("mcap.reader")
    out, rerun, mcap = tmp_path / "out", tmp_path / "a.rrd", tmp_path / "a.mcap"
    detected_before(drive, out)
    options = ("--out", out, "--resume", "--mode", mode, "--rerun", rerun, "--mcap", mcap, "--no-pictures")
    done = perceive("track", drive, *options)
    assert (done.status, f"1 object in {FRAMES} of {FRAMES} frames" in done.output) == (0, True)
    told = [record["track_id"] for record in records_of(out)]
    assert told == [[1]] * FRAMES
    parts = list(chunk.RrdReader(rerun).stream())
    assert {"/map/trails", "/map/robot/detections/tracks"} <= {part.entity_path for part in parts}
    assert any("track_id" in name for part in parts for name in part.to_record_batch().schema.names)
    with mcap.open("rb") as stream:
        messages = [
            (channel.topic, message.data)
            for _, channel, message in reader.make_reader(stream).iter_messages(topics=["/tracks", "/trails"])
        ]
    assert [json.loads(data)["track_id"] for topic, data in messages if topic == "/tracks"] == told
    assert sum(topic == "/trails" for topic, _ in messages) == FRAMES


def test_a_recording_with_its_poses(
    perceive: Perceive, drive: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    """In the global mode the scans are read a second time, for the pictures."""
    out = tmp_path / "out"
    options = ("--weights", tiny_weights, "--mode", "global", "--pictures")
    done = perceive("track", drive, "--out", out, *options)
    assert (done.status, f"of {FRAMES} frames" in done.output) == (0, True)
    records = records_of(out)
    assert [record["pose"]["map_from_lidar"][0][3] for record in records] == pytest.approx([0, 0.5, 1])
    times = [record["time_ns"] for record in records_of(out, "boxes.jsonl")]
    assert times == [START_NS + k * 10**8 for k in range(FRAMES)]
    assert len(list(out.glob("drive-*.png"))) == FRAMES


def test_a_recording_without_poses_is_said(
    perceive: Perceive, street: Street, tiny_weights: Path, tmp_path: Path
) -> None:
    pytest.importorskip("foxglove")
    path = tmp_path / "still.mcap"
    with open_recordings(mcap=path, title="no poses") as recordings:
        recordings.scan(PointCloud(street(0).points), Detections.empty(), RecordingMoment(0, START_NS))
    done = perceive("track", path, "--out", tmp_path / "out", "--weights", tiny_weights, "--no-pictures")
    assert (done.status, "without poses: " in done.remarks) == (0, True)
    assert "pose" not in records_of(tmp_path / "out")[0]


@pytest.mark.parametrize("mode", ["online", "delayed"])
def test_a_run_goes_on_where_it_stopped(
    mode: str, perceive: Perceive, scans: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options: tuple[object, ...] = ("track", scans, "--out", out, "--weights", tiny_weights, "--mode", mode)
    options += ("--no-pictures",) if mode == "delayed" else ("--pictures",)
    assert perceive(*options).status == 0
    assert "--resume" in perceive(*options).remarks
    whole, boxes = records_of(out), (out / "boxes.jsonl").read_bytes()
    assert (out / "player.html").is_file() == (mode == "online")
    page = (out / "player.html").read_bytes() if mode == "online" else b""
    # Stopped in the third scan: its boxes half written, its tracks and picture not at all.
    lines = boxes.splitlines(keepends=True)
    (out / "boxes.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:40])
    (out / "detections.jsonl").write_bytes(
        b"".join((out / "detections.jsonl").read_bytes().splitlines(keepends=True)[:2])
    )
    (out / "street2.png").unlink(missing_ok=True)
    (out / "street1.png").write_bytes(b"drawn before")
    assert perceive(*options, "--resume").status == 0
    assert records_of(out) == whole
    assert (out / "boxes.jsonl").read_bytes().splitlines()[:2] == boxes.splitlines()[:2]
    assert (out / "street1.png").read_bytes() == b"drawn before"
    assert (out / "street2.png").is_file() == (mode == "online")
    assert not page or (out / "player.html").read_bytes() == page
    (out / "boxes.jsonl").unlink()
    alone = perceive(*options, "--resume")
    assert (alone.status, "--resume needs boxes.jsonl" in alone.remarks) == (2, True)
    assert records_of(out) == whole


def test_boxes_that_were_changed_are_named(
    perceive: Perceive, scans: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    options = ("track", scans, "--out", tmp_path, "--weights", tiny_weights, "--no-pictures")
    assert perceive(*options).status == 0
    record = json.loads((tmp_path / "boxes.jsonl").read_text().splitlines()[0])
    (tmp_path / "boxes.jsonl").write_text(json.dumps(record | {"scores": "none"}) + "\n")
    done = perceive(*options, "--resume")
    assert (done.status, "scores must be a list" in done.remarks) == (2, True)


def test_scans_of_nuscenes_give_its_results(perceive: Perceive, tiny_weights: Path, tmp_path: Path) -> None:
    root = write_nuscenes(tmp_path / "nuscenes")
    scene = sorted((root / "samples/LIDAR_TOP").iterdir())[:KEYS]
    options = ("--weights", tiny_weights, "--rate-hz", 2, "--no-pictures", "--rename", "Car=car")
    done = perceive("track", *scene, "--out", tmp_path / "out", *options)
    assert done.status == 0
    told = json.loads((tmp_path / "out/results.json").read_text())["results"]
    assert len(told) == KEYS
    judged = perceive(
        "eval", "--data", root, "--split", "scene-0061", "--tracking", tmp_path / "out/results.json", "--json"
    )
    assert json.loads(judged.output)["frames"] == KEYS


def test_scans_without_times_are_as_far_apart_as_the_tracker_takes_them(
    perceive: Perceive, scans: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    """However long a frame took: a memory would take the difference for a gap."""
    out = tmp_path / "out"
    options = ("--weights", tiny_weights, "--rate-hz", 5, "--no-pictures")
    assert perceive("track", scans, "--out", out, *options).status == 0
    lines = [json.loads(line) for line in (out / "detections.jsonl").read_text().splitlines()]
    assert {line["timestamp_ns"] for line in lines} == {None}
    assert np.diff([line["detected_ns"] for line in lines]).tolist() == [2 * 10**8] * (len(lines) - 1)
    assert len(lines) > 1
