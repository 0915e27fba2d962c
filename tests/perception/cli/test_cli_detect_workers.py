"""``perceive detect --workers``: what one process finds, by several."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cloud_bags import write_bag

from perception.train.frames import TrainingFrame

Street = Callable[[int], TrainingFrame]
Perceive = Callable[..., Any]
#: What tells when a frame was detected, and how long that took.
CLOCKS = ("detected_ns", "elapsed_ms")


def records_of(out: Path) -> list[dict[str, Any]]:
    lines = (out / "detections.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in CLOCKS} for line in lines]


@pytest.fixture
def arguments(tiny_weights: Path) -> tuple[object, ...]:
    return ("--weights", tiny_weights, "--score", 0.0, "--no-pictures")


def test_the_records_are_those_of_one_process(
    perceive: Perceive, scans: Path, street: Street, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    """Files, one of them broken, and a bag whose later scans count intensity to 255; then the rest only."""
    (scans / "street1.bin").write_bytes(b"123")
    streets = [street(seed).points.copy() for seed in range(6)]
    for points in streets[3:5]:
        points[:, 3] *= 255
    paths = (scans, write_bag(tmp_path / "bag", streets, broken=1))
    plain = perceive("detect", *paths, "--out", tmp_path / "plain", *arguments)
    several = perceive("detect", *paths, "--out", tmp_path / "several", *arguments, "--workers", 2)
    assert plain.status == several.status == 1
    expected = records_of(tmp_path / "plain")
    assert len(expected) == 7
    assert records_of(tmp_path / "several") == expected
    assert plain.remarks == several.remarks
    assert f"7 of 9 frames in {tmp_path / 'several'}\n" in several.output
    assert "street0" not in several.output
    lines = (tmp_path / "several/detections.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "several/detections.jsonl").write_bytes(b"".join(lines[:5]) + lines[5][:40])
    rest = perceive("detect", *paths, "--out", tmp_path / "several", *arguments, "--workers", 1, "--resume")
    assert rest.status == 1
    assert "2 of 4 frames" in rest.output
    assert "5 more were there before" in rest.output
    assert records_of(tmp_path / "several") == expected
