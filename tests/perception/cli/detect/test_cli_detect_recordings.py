"""``perceive detect`` on recordings, and into recordings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sensor_packets
from cloud_bags import write_bag

from perception.io.recordings.bag_scans import BagScans
from perception.io.recordings.bags import open_bag
from perception.train.data.frames import TrainingFrame

Street = Callable[[int], TrainingFrame]
Perceive = Callable[..., Any]
SECOND_NS = 10**9


def records_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "detections.jsonl").read_text().splitlines()]


def test_a_bag_is_detected_like_its_scans(
    perceive: Perceive, street: Street, tiny_weights: Path, tmp_path: Path
) -> None:
    streets = [street(seed).points for seed in range(2)]
    bag = write_bag(tmp_path / "bag", streets)
    for k, points in enumerate(streets):
        points.astype("<f4").tofile(tmp_path / f"{k}.bin")
    arguments = ("--weights", tiny_weights, "--score", 0.0, "--no-pictures", "--json")
    done = perceive(
        "detect", bag, tmp_path / "0.bin", tmp_path / "1.bin", "--out", tmp_path / "out", *arguments
    )
    assert done.status == 0
    records = records_of(tmp_path / "out")
    assert [json.loads(line) for line in done.output.splitlines()] == records
    assert [record["frame"] for record in records] == ["0", "1", "bag-000000", "bag-000001"]
    for file, scan in zip(records[:2], records[2:], strict=True):
        assert file["boxes"] == scan["boxes"]
        assert len(file["boxes"]) > 0
    assert [record["timestamp_ns"] for record in records] == [
        None,
        None,
        100 * SECOND_NS + 5,
        101 * SECOND_NS + 5,
    ]
    assert records[2]["source"] == f"{bag}:/points#0"


def test_pictures_of_a_bag(perceive: Perceive, street: Street, tiny_weights: Path, tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag", [street(0).points])
    out = tmp_path / "out"
    assert perceive("detect", bag, "--out", out, "--weights", tiny_weights).status == 0
    names = {path.name for path in out.iterdir()}
    assert names == {"detections.jsonl", "bag-000000.png", "player.html"}
    assert '"name":"bag-000000"' in (out / "player.html").read_text()


def test_a_bad_scan_does_not_stop_the_others(
    perceive: Perceive, street: Street, tiny_weights: Path, tmp_path: Path
) -> None:
    bag = write_bag(tmp_path / "bag", [street(seed).points for seed in range(3)], broken=1)
    done = perceive("detect", bag, "--out", tmp_path / "out", "--weights", tiny_weights, "--no-pictures")
    assert done.status == 1
    assert "2 of 3 frames" in done.output
    assert f"skipped: {bag}: topic /points, message 1: truncated" in done.remarks
    assert [record["frame"] for record in records_of(tmp_path / "out")] == ["bag-000000", "bag-000002"]


def test_the_topic_is_chosen(perceive: Perceive, street: Street, tiny_weights: Path, tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag", [street(0).points], topics=2)
    arguments = ("--out", tmp_path / "out", "--weights", tiny_weights, "--no-pictures")
    done = perceive("detect", bag, *arguments)
    assert done.status == 2
    assert "bag: 2 topics hold point clouds: /points (1), /points1 (1)" in done.remarks
    assert not (tmp_path / "out").exists()
    assert perceive("detect", bag, *arguments, "--topic", "/points1").status == 0
    assert records_of(tmp_path / "out")[0]["source"] == f"{bag}:/points1#0"
    wrong = perceive("detect", bag, *arguments, "--topic", "/none")
    assert wrong.status == 2
    assert "no topic '/none'" in wrong.remarks
    street(0).points.astype("<f4").tofile(tmp_path / "a.bin")
    no_bag = perceive("detect", tmp_path / "a.bin", *arguments, "--topic", "/points")
    assert no_bag.status == 2
    assert "--topic /points needs a ROS bag" in no_bag.remarks


def test_a_capture_is_detected_turn_by_turn(perceive: Perceive, tiny_weights: Path, tmp_path: Path) -> None:
    """One that is cut off is read as far as it goes, and named; its poses are found by time."""
    pytest.importorskip("dpkt", reason="dpkt is not installed (extra 'packets')")
    profile, path = "RNG19_RFL8_SIG16_NIR16", tmp_path / "drive.pcap"
    sensor_packets.write_metadata(path, sensor_packets.ouster_metadata(profile))
    far = np.full((16, 8), 9000)
    packets = [sensor_packets.ouster_packet(profile, turn, range(16), far, far // 100) for turn in range(3)]
    sent = [(100.0 + 0.1 * turn, "10.0.0.3", 7502, packet) for turn, packet in enumerate(packets)]
    sensor_packets.write_capture(path, sent)
    path.write_bytes(path.read_bytes()[:-10])
    (tmp_path / "poses.txt").write_text("100 1 0 0 0 0 0 1\n101 11 0 0 0 0 0 1\n")
    options = ("--weights", tiny_weights, "--no-pictures", "--poses", tmp_path / "poses.txt")
    done = perceive("detect", path, "--out", tmp_path / "out", *options)
    assert done.status == 1
    assert "capture, or cut off at byte" in done.remarks
    records = records_of(tmp_path / "out")
    assert [record["frame"] for record in records] == ["drive-000000", "drive-000001"]
    assert records[0]["source"] == f"{path}:10.0.0.3:7502#0"
    assert records[0]["pose"]["map_from_lidar"][0][3] == pytest.approx(1.0)
    assert perceive("detect", path, "--out", tmp_path / "o", *options, "--topic", "10.0.0.9:1").status == 2


def test_recordings_are_written(
    perceive: Perceive, street: Street, tiny_weights: Path, tmp_path: Path
) -> None:
    chunk = pytest.importorskip("rerun.chunk")
    pytest.importorskip("foxglove")
    bag = write_bag(tmp_path / "bag", [street(seed).points for seed in range(2)])
    rerun, mcap = tmp_path / "new" / "a.rrd", tmp_path / "new" / "a.mcap"
    arguments = ("--out", tmp_path / "out", "--weights", tiny_weights, "--no-pictures", "--score", 0.0)
    assert perceive("detect", bag, *arguments, "--rerun", rerun, "--mcap", mcap).status == 0
    paths = {part.entity_path for part in chunk.RrdReader(rerun).stream()}
    assert {"/map/robot/points", "/map/robot/detections", "/numbers/objects"} <= paths
    with open_bag(mcap) as written:
        scans = list(BagScans(written))
        assert {"/points", "/detections", "/numbers"} <= {topic.name for topic in written.topics}
    for k, scan in enumerate(scans):
        np.testing.assert_array_equal(scan.cloud.points, street(k).points)
        assert scan.cloud.timestamp_ns == (100 + k) * SECOND_NS + 5
