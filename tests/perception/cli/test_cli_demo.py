"""``perceive demo``: what a newcomer sees first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception.data import open_data_set
from perception.data.sample import sample_frames

Perceive = Callable[..., Any]


@pytest.fixture
def shown(perceive: Perceive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path) -> Any:
    if not (repository / "perception/weights/pointpillars-kitti.safetensors").is_file():
        pytest.skip("no shipped weights in this checkout")
    monkeypatch.chdir(tmp_path)
    return perceive("demo", "--out", "out")


@pytest.mark.slow
def test_it_writes_scans_boxes_tracks_and_says_what_to_look_at(
    shown: Any, perceive: Perceive, tmp_path: Path
) -> None:
    assert shown.status == 0
    lines = shown.output.splitlines()
    named = [line.split()[0] for line in lines[lines.index("Open") + 1 : lines.index("Next")]]
    assert len(named) == 4
    for name in named:
        assert (tmp_path / name).stat().st_size > 10_000
    (judged,) = (line for line in lines if line.startswith("Found "))
    found, known = judged.split()[1:4:2]
    assert int(found) >= 0.85 * int(known) >= 40
    data = open_data_set(tmp_path / "out/street")
    for frame, sample in zip(data, sample_frames(), strict=True):
        np.testing.assert_array_equal(frame.points, sample.points)
        np.testing.assert_array_equal(frame.boxes, sample.boxes)
        np.testing.assert_array_equal(frame.pose, sample.pose)
    records = [
        json.loads(line) for line in (tmp_path / "out/tracks/detections.jsonl").read_text().splitlines()
    ]
    assert len(records) == len(data)
    assert all("pose" in record and "embeddings" in record for record in records)
    # The commands that it names next are ones; and it can be run again.
    for line in lines[lines.index("Next") + 1 :]:
        assert line.split()[0] in ("perceive", "recall")
    assert perceive("doctor", "out/street").status == 0
    assert perceive("demo", "--out", "out").status == 0
