"""Commands run in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from perception.cli import main
from perception.train.data.frames import TrainingFrame


class Outcome(NamedTuple):
    """Exit status and what was printed."""

    status: int
    output: str
    remarks: str


@pytest.fixture
def perceive(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run ``perceive`` with arguments."""

    def run(*arguments: object) -> Outcome:
        status = main([str(argument) for argument in arguments])
        return Outcome(status, *capsys.readouterr())

    return run


@pytest.fixture
def scans(street: Callable[[int], TrainingFrame], tmp_path: Path) -> Path:
    """A folder of three streets."""
    folder = tmp_path / "scans"
    folder.mkdir()
    for number in range(3):
        street(number).points.astype("<f4").tofile(folder / f"street{number}.bin")
    return folder


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """Every test of this folder runs on one thread."""
