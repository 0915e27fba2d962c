"""Commands run in this process."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from memory.cli import main


class Outcome(NamedTuple):
    """Exit status and what was printed."""

    status: int
    output: str
    remarks: str

    @property
    def json(self) -> Any:
        """What was printed, which is one JSON document and nothing else."""
        return json.loads(self.output)


@pytest.fixture
def recall(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Outcome]:
    """Run ``recall`` with arguments, in a folder of its own."""
    monkeypatch.delenv("RECALL_STORE", raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Outcome:
        status = main([str(argument) for argument in arguments])
        return Outcome(status, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def _filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the store of :func:`store` and the file that was imported."""
    folder = tmp_path_factory.mktemp("filled")
    records = [
        {"time": "2026-01-01T10:00:00Z", "label": "door", "caption": "brown front door", "x": 0, "y": 0},
        {"time": "2026-01-02T10:00:00Z", "label": "mug", "caption": "red mug", "x": 1, "y": 2},
        {"time": "2026-01-03T10:00:00Z", "label": "mug", "caption": "blue mug", "x": -4, "y": -4},
        {
            "time": "2026-01-04T10:00:00Z",
            "label": "charger",
            "map_id": "yard",
            "kind": "place",
            "reward": 1.0,
        },
    ]
    vectors = ([1, 0, 0], [0, 1, 0.1], [0, 1, -0.1], [0, 0, 1])
    confidences = (1.0, 0.5, 0.9, 1.0)
    lines = [
        json.dumps(record | {"embedding": vector, "confidence": confidence})
        for record, vector, confidence in zip(records, vectors, confidences, strict=True)
    ]
    (folder / "first.jsonl").write_text("\n".join(lines) + "\n")
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        assert main(["init", str(folder / "store"), "--dim", "3"]) == 0
        assert main(["import", str(folder / "store"), str(folder / "first.jsonl")]) == 0
    return folder


@pytest.fixture
def store(recall: Callable[..., Outcome], _filled: Path, tmp_path: Path) -> Path:
    """A store with a door (1), a red mug (2), a blue mug (3) and a charger on another map (4)."""
    shutil.copytree(_filled, tmp_path, dirs_exist_ok=True)
    return tmp_path / "store"
