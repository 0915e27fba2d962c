"""``perceive detect --limits``, and the summary of frames that reached a limit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Perceive = Callable[..., Any]


def limits_of(out: Path) -> list[list[str]]:
    lines = (out / "detections.jsonl").read_text().splitlines()
    return [json.loads(line)["limits_reached"] for line in lines]


def test_frames_that_reached_a_limit_are_counted(
    perceive: Perceive, scans: Path, tiny_weights: Path, tmp_path: Path
) -> None:
    """Random weights fill every limit; the summary and the records name them, and --limits raises them."""
    options = ("--weights", tiny_weights, "--no-pictures", "--score", 0.0)
    done = perceive("detect", scans, "--out", tmp_path / "few", *options)
    assert "3 of 3 frames reached a limit (head.top_k in 3, refine.proposals in 3)" in done.remarks
    assert limits_of(tmp_path / "few") == [["head.top_k", "refine.proposals"]] * 3
    several = perceive("detect", scans, "--out", tmp_path / "several", *options, "--workers", 1)
    assert "3 of 3 frames reached a limit (head.top_k in 3, refine.proposals in 3)" in several.remarks
    raised = perceive("detect", scans, "--out", tmp_path / "many", *options, "--limits", 50)
    assert "reached a limit" not in raised.remarks
    assert limits_of(tmp_path / "many") == [[]] * 3
    with pytest.raises(SystemExit, match="2"):
        perceive("detect", scans, "--out", tmp_path / "none", *options, "--limits", 0)


def test_abbreviations_are_refused(
    perceive: Perceive, scans: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Read as --limits, --limit 2 would detect in all scans."""
    with pytest.raises(SystemExit, match="2"):
        perceive("detect", scans, "--limit", 2)
    assert "unrecognized arguments: --limit 2" in capsys.readouterr().err
