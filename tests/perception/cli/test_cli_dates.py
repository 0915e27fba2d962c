"""When scans were taken: what their files tell, what is assumed where they tell nothing, and who says so."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception.train.data.frames import TrainingFrame

Perceive = Callable[..., Any]
Street = Callable[[int], TrainingFrame]
SECOND_NS = 10**9
#: 3 March 2026.
CHANGED_NS = 1_772_496_000 * SECOND_NS


@pytest.fixture
def dated(scans: Path) -> Path:
    """Scans whose first file was changed on a known day, and the others on another."""
    for number, path in enumerate(sorted(scans.iterdir())):
        os.utime(path, ns=(0, CHANGED_NS - number * 77 * SECOND_NS))
    return scans


@pytest.fixture
def numbered(dated: Path) -> Path:
    """A KITTI-like drive: velodyne/000000.bin and so on."""
    folder = dated.parent / "drive/velodyne"
    folder.mkdir(parents=True)
    for number, path in enumerate(sorted(dated.iterdir())):
        path.rename(folder / f"{number:06d}.bin")
    return folder


@pytest.fixture
def records(perceive: Perceive, tiny_weights: Path, tmp_path: Path) -> Callable[..., Any]:
    """Run a command; what it wrote, and its remarks."""

    def run(command: str, *arguments: object) -> tuple[list[dict[str, Any]], str]:
        out = tmp_path / "found"
        own = ("--out", out, "--weights", tiny_weights, "--no-pictures", "--overwrite")
        done = perceive(command, *arguments, *own)
        assert done.status == 0, done.remarks
        lines = (out / "detections.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines], done.remarks

    return run


@pytest.mark.parametrize("command", ["detect", "track"])
def test_scans_without_times_are_dated_by_their_first_file(
    command: str, records: Callable[..., Any], dated: Path
) -> None:
    found, remarks = records(command, dated)
    assert [line["timestamp_ns"] for line in found] == [None] * 3
    assert [line["assumed_ns"] - CHANGED_NS for line in found] == [0, 10**8, 2 * 10**8]
    assert {line["assumed_from"] for line in found} == {"file"}
    assert remarks.count("warning: scans have no times: street0 is dated 2026-03-03T00:00:00Z") == 1
    found, remarks = records(command, dated, "--start", "2020-01-01T00:00:00+01:00")
    assert [line["assumed_ns"] for line in found] == [
        (1_577_833_200 * 10 + tenth) * 10**8 for tenth in range(3)
    ]
    assert {line["assumed_from"] for line in found} == {"start"}
    assert "warning: the scans have" not in remarks


@pytest.mark.parametrize("command", ["detect", "track"])
@pytest.mark.parametrize("name", ["times.txt", "timestamps.txt"])
def test_seconds_since_the_start_are_no_dates(
    command: str, name: str, records: Callable[..., Any], numbered: Path
) -> None:
    """Found beside the folder, as KITTI's odometry and raw data have them."""
    (numbered.parent / name).write_text("0.0\n0.3\n0.5\n")
    found, remarks = records(command, numbered)
    assert [line["timestamp_ns"] for line in found] == [0, 300_000_000, 500_000_000]
    assert [line["assumed_ns"] - CHANGED_NS for line in found] == [0, 300_000_000, 500_000_000]
    assert "dates (first: 0 s): 000000 is dated 2026-03-03" in remarks
    (numbered.parent / name).write_text("2011-09-26 13:02:25.5\n\n2011-09-26 13:02:25.75\n")
    found, remarks = records(command, numbered)
    assert [line["timestamp_ns"] for line in found] == [
        1_317_042_145_500_000_000, None, 1_317_042_145_750_000_000
    ]  # fmt: skip
    assert ["assumed_ns" in line for line in found] == [False, True, False]
    assert "scans have no times: 000001 is dated" in remarks


def test_names_and_files_of_times_tell_dates(records: Callable[..., Any], dated: Path) -> None:
    stamps = (1_532_402_927_647_951, 1_532_402_928_147_999, 1_532_402_928_648_000)
    for path, stamp in zip(sorted(dated.iterdir()), stamps, strict=True):
        path.rename(dated / f"n015__LIDAR_TOP__{stamp}.bin")
    found, remarks = records("track", dated)
    assert [line["timestamp_ns"] for line in found] == [1000 * stamp for stamp in stamps]
    assert "assumed_ns" not in found[0]
    assert "warning: the scans have" not in remarks
    times = dated.parent / "times.txt"
    times.write_text("1600000000\n1600000001\n1600000002\n")
    found, _ = records("detect", dated, "--times", times)
    assert [line["timestamp_ns"] for line in found] == [(1_600_000_000 + k) * SECOND_NS for k in range(3)]


def test_points_of_a_pcd_file_tell_its_time(
    records: Callable[..., Any], street: Street, tmp_path: Path
) -> None:
    points = street(0).points
    table = np.zeros(len(points), [(name, "<f4") for name in "xyzi"] + [("timestamp", "<f8")])
    for column, name in enumerate("xyzi"):
        table[name] = points[:, column]
    table["timestamp"] = 1_626_240_238.805763 + np.linspace(0.1, 0, len(points))
    table["timestamp"][7] = 0
    head = (
        "FIELDS x y z i timestamp\nSIZE 4 4 4 4 8\nTYPE F F F F F\nCOUNT 1 1 1 1 1\n"
        f"WIDTH {len(points)}\nHEIGHT 1\nPOINTS {len(points)}\nDATA binary\n"
    )
    (tmp_path / "000001.pcd").write_bytes(head.encode() + table.tobytes())
    found, remarks = records("detect", tmp_path / "000001.pcd")
    assert [line["timestamp_ns"] for line in found] == [1_626_240_238_805_763_000]
    assert "warning: the scans have" not in remarks


def test_times_that_go_backwards_are_named(perceive: Perceive, scans: Path, tiny_weights: Path) -> None:
    times = scans.parent / "times.txt"
    times.write_text("# made by hand\n10.0\n11.5\n11.0\n")
    arguments = ("track", scans, "--out", scans.parent / "out", "--weights", tiny_weights, "--no-pictures")
    done = perceive(*arguments, "--times", times)
    assert done.status == 2
    told = "line 4: scan 'street2' is 0.500 s earlier than 'street1'"
    assert told in done.remarks


def test_a_start_that_is_no_date(perceive: Perceive, scans: Path, tmp_path: Path) -> None:
    done = perceive("detect", scans, "--out", tmp_path / "out", "--start", "noon")
    assert done.status == 2
    assert "'noon' is no" in done.remarks
