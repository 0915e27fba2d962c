"""``demos/month.py``: every sight is kept, recall is that of the same vectors compared, and truth judges."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from memory import MemoryStore
from memory.query import Filter
from perception import Detections, PointCloud

DAYS, CARS = 3, 40


@pytest.fixture(scope="module")
def drive() -> dict[str, ModuleType]:
    """The parts of the demo, as they are where it is run."""
    names = ("frames", "report.month_picture", "senses", "observations")
    return {name: importlib.import_module(f"drive.{name}") for name in names}


def town(drive: dict[str, ModuleType], seed: int = 0) -> list[tuple[Any, Any]]:
    """Three days past cars in a row, each with its look; the first ten are others on the last day."""
    frames = drive["frames"]
    random = np.random.default_rng(seed)
    looks = random.standard_normal((CARS + 10, 128)).astype(np.float32)
    found = []
    for day in range(DAYS):
        for number in range(0, CARS, 4):
            pose = np.eye(4)
            pose[0, 3] = 6.0 * number
            keys = [k if day < DAYS - 1 or k >= 10 else CARS + k for k in range(number, number + 4)]
            boxes = np.array([[6.0 * k, 4.0, 0.8, 4.0, 1.8, 1.6, 0.0] for k in range(4)], np.float32)
            vectors = looks[keys] + 0.02 * random.standard_normal((4, 128)).astype(np.float32)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            frame = frames.Frame(
                f"day{day}-loop0-{number:03d}",
                day,
                frames.START_NS + day * frames.DAY_NS + number * frames.SECOND_NS,
                PointCloud(np.zeros((0, 4), np.float32)),
                pose,
                tuple(
                    frames.Place(key, "Car", np.array([6.0 * (number + k), 4.0]))
                    for k, key in enumerate(keys)
                ),
            )
            scores = np.full(4, 0.9, np.float32)
            place = random.standard_normal(256).astype(np.float32)
            percept = drive["senses"].Percept(
                Detections(boxes, scores, ["Car"] * 4, embeddings=vectors),
                place / np.linalg.norm(place),
                np.full(100, np.inf),
                1.0,
            )
            found.append((frame, percept))
    return found


def test_every_sight_is_kept_found_and_judged(drive: dict[str, ModuleType], tmp_path: Path) -> None:
    observations = drive["observations"]
    config = observations.settings("lsh", 64)
    kept = observations.store_all(tmp_path / "store", town(drive), DAYS, config)
    assert (kept.scans, kept.memories, len(kept.asked)) == (30, 2 * (CARS + 10), CARS)
    found = observations.found_again(tmp_path / "store", [memory for memory, _ in kept.asked], k=2)
    assert found["vectors"] == 2 * CARS
    assert found["index"]["index"] == "LSHIndex"
    assert found["recall"] > 0.9
    assert not (tmp_path / "store-compared").exists()
    seen = observations.recognised_again(tmp_path / "store", kept, most=100, seed=0)
    assert (seen["asked"], seen["seen_before"], seen["right"]) == (CARS, CARS - 10, 1.0)
    picture = drive["report.month_picture"].draw_month(
        tmp_path / "m.png", "t", kept.path, _all(tmp_path), found
    )
    assert np.ptp(imread(picture)) > 0.5


def test_wrong_answers_are_counted(drive: dict[str, ModuleType], tmp_path: Path) -> None:
    """Truth that is another one makes the same answers wrong."""
    observations = drive["observations"]
    kept = observations.store_all(tmp_path / "store", town(drive), DAYS, observations.settings("lsh", 20_000))
    kept.known.clear()
    seen = observations.recognised_again(tmp_path / "store", kept, most=100, seed=0)
    assert (seen["seen_before"], seen["right"], seen["right_of_seen"]) == (0, 0.25, None)


@pytest.mark.slow
def test_a_quick_month(repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("open3d")
    script = [sys.executable, str(repository / "demos" / "month.py"), "--quick", "--json"]
    done = subprocess.run([*script, "--out", str(tmp_path)], capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    assert report["memories"] > 100
    assert report["found_again"]["recall"] > 0.9
    assert report["seen_before"]["right"] > 0.7
    assert Path(report["picture"]).stat().st_size > 10_000


def _all(folder: Path) -> Any:
    with MemoryStore.open(folder / "store", readonly=True) as store:
        return store.find(Filter())
