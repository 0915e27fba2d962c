"""How relocalization and coverage are judged."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.memory.certainty import coverage, locate, revisits


def test_a_pose_is_right_within_2_m_and_5_degrees() -> None:
    true = (10.0, 20.0, 3.1)
    assert locate._outcome((11.0, 21.0, -3.1), true) == "right"
    assert locate._outcome((12.0, 21.0, 3.1), true) == "wrong"
    assert locate._outcome((10.0, 20.0, 3.1 + math.radians(6.0)), true) == "wrong"
    assert locate._outcome(None, true) == "refused"


def test_drives_are_split_by_scan_and_by_stretch() -> None:
    scans = []
    for number in range(80):
        pose = np.eye(4)
        pose[0, 3] = 0.5 * number
        scans.append(revisits.Scan(np.zeros((1, 4), np.float32), pose, number))
    every, stretches = revisits._splits("drive", scans, "weights")
    mapped, queried = every.scans()
    assert [scan.time_ns for scan in mapped[:3]] == [0, 2, 4]
    assert [scan.time_ns for scan in queried[:3]] == [1, 3, 5]
    mapped, queried = stretches.scans()
    assert sorted(scan.time_ns for scan in (*mapped, *queried)) == list(range(80))
    assert [scan.time_ns for scan in queried] == [*range(20, 40), *range(60, 80)]


def test_a_vehicle_that_stands_still_has_no_stretches() -> None:
    scans = [revisits.Scan(np.zeros((1, 4), np.float32), np.eye(4), number) for number in range(10)]
    (only,) = revisits._splits("standing", scans, "weights")
    assert only.group == "every other scan"


def test_coverage_counts_unknown_as_covered_and_answers_apart() -> None:
    said = [
        coverage.JudgedAnswer(0.9, "yes", True, True),
        coverage.JudgedAnswer(0.9, "yes", True, False),
        coverage.JudgedAnswer(0.9, "unknown", True, False),
        coverage.JudgedAnswer(0.9, "unknown", False, True),
        coverage.JudgedAnswer(0.8, "no", True, False),
    ]
    row = next(each for each in coverage.rows_of(said) if each["confidence"] == 0.9)
    assert (row["available"], row["asked"]) == (3, 4)
    assert row["all"] == {"asked": 3, "covered": 2, "unknown": 1}
    assert row["yes"] == {"asked": 1, "covered": 1, "unknown": 0}
    assert row["no"] == {"asked": 2, "covered": 1, "unknown": 1}


def test_a_failed_command_names_its_output(tmp_path: Path) -> None:
    from memory.cli import main

    with pytest.raises(RuntimeError, match="stats ended with status 2"):
        revisits.run_quietly(main, "stats", tmp_path / "missing")
