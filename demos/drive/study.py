"""A long drive, remembered by three stores and judged: one seed of ``benchmarks/memory/drive.py``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from drive.frames import DriveConfig, Frame
from drive.perceiving import Percept
from drive.perception_run import recalled
from drive.touring import Remembered, remember
from drive.town import TownConfig


class Recording:
    """A drive that was perceived before: frames to iterate over, and the senses that go with them."""

    def __init__(self, folder: Path, town: TownConfig, drive: DriveConfig) -> None:
        self._rows = recalled(folder, town, drive)
        self._percept: Percept | None = None

    def __iter__(self) -> Iterator[Frame]:
        for frame, percept in self._rows:
            self._percept = percept
            yield frame

    def __call__(self, frame: Frame) -> Percept:
        """The percept of the frame that was given last."""
        if self._percept is None:
            raise ValueError(f"no frame before {frame.name} was read")
        return self._percept


def studied(folder: Path, town: TownConfig, drive: DriveConfig, *, each: int) -> dict[str, Any]:
    """Remember a perceived drive, and judge the three stores.

    Args:
        folder: of the percepts, see :mod:`drive.perception_run`.
        town, drive: of the drive.
        each: most questions of a kind.

    Returns:
        Plain numbers: what became of the observations, and of each store what it holds and how good it is.
    """
    recording = Recording(folder, town, drive)
    with tempfile.TemporaryDirectory() as scratch:
        done = remember(
            Path(scratch), recording, days=drive.days, each=each, seed=drive.seed, senses=recording
        )
    return {"seed": drive.seed, **_drive_figures(done), "stores": {r.name: _store(r) for r in done.results}}


def _drive_figures(done: Remembered) -> dict[str, Any]:
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
    """Without the answers themselves, but for those that are wrong."""
    figures: dict[str, Any] = result.to_json()
    answers = figures["questions"].pop("answers")
    figures["questions"]["wrong"] = [
        f"{answer['text']} {answer['said']}; true: {answer['expected']}"
        for answer in answers
        if not answer["right"]
    ]
    return figures
