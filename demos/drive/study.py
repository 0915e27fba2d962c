"""Evaluation of three stores on a long drive: one seed of ``benchmarks/memory/drive.py``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from drive.frames import DriveConfig, Frame
from drive.perception_run import read_drive
from drive.senses import Percept
from drive.tour import DriveEvaluation, remember
from drive.town import TownConfig


class RecordedDrive:
    """A perceived drive: iterate for its frames; call with a frame for its percept."""

    def __init__(self, folder: Path, town: TownConfig, drive: DriveConfig) -> None:
        self._rows = read_drive(folder, town, drive)
        self._percept: Percept | None = None

    def __iter__(self) -> Iterator[Frame]:
        for frame, percept in self._rows:
            self._percept = percept
            yield frame

    def __call__(self, frame: Frame) -> Percept:
        """Return the percept of the last yielded frame."""
        if self._percept is None:
            raise ValueError(f"no frame before {frame.name} was read")
        return self._percept


def run_study(folder: Path, town: TownConfig, drive: DriveConfig, *, each: int) -> dict[str, Any]:
    """Remember a perceived drive, and evaluate the three stores.

    Args:
        folder: of the percepts, see :mod:`drive.perception_run`.
        town, drive: of the drive.
        each: most questions per kind.

    Returns:
        Plain numbers about the observations and each store.
    """
    recording = RecordedDrive(folder, town, drive)
    with tempfile.TemporaryDirectory() as scratch:
        done = remember(
            Path(scratch), recording, days=drive.days, each=each, seed=drive.seed, senses=recording
        )
    return {"seed": drive.seed, **_drive_figures(done), "stores": {r.name: _store(r) for r in done.results}}


def _drive_figures(done: DriveEvaluation) -> dict[str, Any]:
    tally = done.robot.tally
    return {
        "scans": len(tally.timeline),
        "observations": tally.offered,
        "held": tally.held,
        "dropped": tally.dropped.total(),
        "displaced": tally.displaced,
        "merged": tally.merged,
        "forgotten": tally.forgotten.total(),
        "gone": tally.gone,
        "detection_ms": _spread(tally.detection_ms),
        "observe_ms": _spread(tally.observe_ms),
        "end_of_day_s": float(np.median(tally.consolidation_s)) + float(np.median(tally.presence_s)),
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": float(np.median(values)), "p95": float(np.percentile(values, 95))}


def _store(result: Any) -> dict[str, Any]:
    """Return the figures of a store, with wrong answers only."""
    figures: dict[str, Any] = result.to_json()
    answers = figures["questions"].pop("answers")
    figures["questions"]["wrong"] = [
        f"{answer['text']} {answer['said']}; true: {answer['expected']}"
        for answer in answers
        if not answer["right"]
    ]
    return figures
