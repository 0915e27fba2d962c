"""The table of tracks is what the commands of its page give, where they are given the cars alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from benchmarks.tracking.tracking import _cars, _figures, _follow, _followed
from perception.cli import main
from perception.track import TrackerConfig
from perception.track.folders import DetectionFolder

_SEQUENCE = "0003"


def test_commands_give_the_figures_of_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = Path(os.environ.get("SPARSIGHT_DATA", "../shared/data")).resolve() / "kitti_tracking"
    detections = data / "detections_pointrcnn" / "Car" / f"{_SEQUENCE}.txt"
    if not detections.is_file():
        pytest.skip(f"no {detections}")
    cars = tmp_path / "cars"
    for file in (detections, data / "calib" / f"{_SEQUENCE}.txt", data / "label_02" / f"{_SEQUENCE}.txt"):
        link = cars / file.relative_to(data)
        link.parent.mkdir(parents=True)
        link.symlink_to(file)
    lines = (data / "seqmap.txt").read_text().splitlines()
    (cars / "seqmap.txt").write_text("".join(f"{line}\n" for line in lines if line.startswith(_SEQUENCE)))
    folder = DetectionFolder(cars)
    held = {_SEQUENCE: _cars(folder.moments(_SEQUENCE))}
    pairs, _ = _followed(folder, held, _follow(TrackerConfig.for_log_odds(), "global"))
    expected = _figures(pairs)
    out = tmp_path / "out"
    assert main(["track", "--results", str(cars), "--out", str(out), "--mode", "global"]) == 0
    capsys.readouterr()
    assert main(["eval", "--tracking", str(out), "--data", str(cars), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["Car"]
    # Files hold six digits of each number.
    assert {name: told[name] for name in expected} == pytest.approx(expected, abs=2e-5)
