"""Limits per frame: whole scans in four ranges, and boxes that a limit loses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.calls.limits import main, missing
from perception import Detections


def found(*places: float, label: str = "Car") -> Detections:
    boxes = np.zeros((len(places), 7), np.float32)
    boxes[:, 0] = places
    boxes[:, 3:6] = 1
    return Detections(boxes, np.full(len(places), 0.5, np.float32), [label] * len(places))


def test_boxes_without_an_equal_one_are_counted() -> None:
    assert missing(found(1.0, 2.0), found(1.0, 2.001)) == 0
    assert missing(found(1.0), found(1.0, 5.0)) == 1
    assert missing(found(1.0, label="Pedestrian"), found(1.0)) == 1
    assert missing(found(), found(1.0)) == 1
    assert missing(found(1.0), found()) == 0


@pytest.mark.slow
def test_a_run_on_one_whole_scan(tmp_path: Path, capsys: Any) -> None:
    generator = np.random.default_rng(0)
    folder = tmp_path / "kitti/training/velodyne"
    folder.mkdir(parents=True)
    points = generator.uniform([-40, -40, -1.8, 0], [40, 40, -1.6, 1], (3000, 4)).astype(np.float32)
    points.tofile(folder / "000000.bin")
    out = tmp_path / "limits.json"
    given = ["--data", str(tmp_path / "kitti"), "--quick", "--threads", "1", "--out", str(out), "--json"]
    assert main(given) == 0
    values = json.loads(out.read_text())
    assert [case["name"] for case in values["cases"]] == [
        "view of the camera",
        "112.64 m x 112.64 m",
        "153.6 m x 153.6 m",
        "unbounded",
    ]
    assert [case["limits"][0] for case in values["cases"]] == [100, 232, 431, 1600]
    assert all(case["lost"] == 0 and case["time"]["count"] == 1 for case in values["cases"])
