"""``recall locate``: its answers, exit status and errors."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from memory import Memory, MemoryStore
from memory.cli import main
from memory.merging.motion import Motion

LABELS = ("bench", "lamp", "hydrant", "sign", "tree")
POSE = Motion(0.7, 48.0, 52.0)


def objects(seed: int) -> list[Memory]:
    """Objects that stand anywhere on 100 m by 100 m."""
    random = np.random.default_rng(seed)
    return [
        Memory(time_ns=0, position=(*place, 0.0), label=LABELS[number % len(LABELS)])
        for number, place in enumerate(random.uniform(0.0, 100.0, (60, 2)).tolist())
    ]


def write_scan(path: Path, seen: list[Memory]) -> Path:
    """Write what is around the pose as a line of detections, after another line."""
    places = POSE.inverse().points(np.array([each.place for each in seen]))
    rows = [row for row in range(len(seen)) if math.hypot(*places[row, :2]) < 30.0]
    record = {
        "boxes": [[*places[row].tolist(), 1.0, 1.0, 1.0, 0.0] for row in rows],
        "scores": [1.0] * len(rows),
        "labels": [seen[row].label for row in rows],
    }
    path.write_text(f'{{"boxes": [], "scores": [], "labels": []}}\n{json.dumps(record)}\n', encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with MemoryStore.open(tmp_path / "store", dim=4) as store:
        store.add(objects(0))
    return tmp_path / "store"


def test_a_known_scan_gives_the_pose(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scan = write_scan(tmp_path / "detections.jsonl", objects(0))
    assert main(["locate", str(folder), "--like", str(scan), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "located"
    assert found["pose"]["position"][:2] == pytest.approx((48.0, 52.0), abs=0.1)
    assert found["pose"]["yaw"] == pytest.approx(0.7, abs=0.01)
    assert found["sentence"].startswith("At (48.0, 52.0) in map default, heading 40 degrees: probability")
    assert main(["locate", str(folder), "--like", str(scan)]) == 0
    assert "48.0, 52.0" in capsys.readouterr().out


def test_an_unknown_scan_is_refused_with_status_1(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scan = write_scan(tmp_path / "detections.jsonl", objects(99))
    assert main(["locate", str(folder), "--like", str(scan), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["pose"] is None
    assert main(["locate", str(folder), "--like", str(scan)]) == 1
    assert capsys.readouterr().out.startswith(("Unknown place", "I cannot tell"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "locate needs a scan. Add --like FILE"),
        (["--like", "missing.jsonl"], "missing.jsonl"),
        (["--like", "SCAN", "--map", "moon"], "no map 'moon'. The maps are default"),
        (["--like", "SCAN", "--least-probability", "2"], "least_probability must be between 0 and 1"),
    ],
)
def test_mistakes_are_named(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    scan = write_scan(tmp_path / "detections.jsonl", objects(0))
    given = [str(scan) if each == "SCAN" else each for each in arguments]
    assert main(["locate", str(folder), *given]) == 2
    assert words in capsys.readouterr().err
