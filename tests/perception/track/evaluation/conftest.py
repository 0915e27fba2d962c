"""Random sequences: tracks that break, switch, are wrong, small, hidden, cut off or in unlabelled regions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Write = Callable[[Path, int], tuple[Path, Path]]

_KINDS = {"Car": (1.5, 1.7, 4.2), "Van": (2.1, 1.9, 5.0), "Pedestrian": (1.8, 0.6, 0.8)}
_FRAMES = {"0001": 22, "0004": 15, "0010": 4}


def _row(frame: int, track: int, kind: str, hidden: str, box: list[float], space: list[float]) -> str:
    numbers = " ".join(f"{value:.4f}" for value in (*box, *space))
    return f"{frame} {track} {kind} {hidden} -1.5 {numbers}"


def _pixels(random: np.random.Generator, x: float, z: float, height: float) -> list[float]:
    left, tall = 600 + 700 * x / z, 700 * height / z
    wide = tall * random.uniform(0.9, 1.6)
    return [left - wide / 2, 180.0, left + wide / 2, 180.0 + tall]


def _sequence(random: np.random.Generator, frames: int) -> tuple[list[str], list[str]]:
    labels, results, spare = [], [], 900
    for track in range(int(random.integers(5, 9))):
        kind = str(random.choice(list(_KINDS), p=[0.6, 0.2, 0.2]))
        size = np.array(_KINDS[kind]) * random.uniform(0.9, 1.1, 3)
        place = np.array([random.uniform(-12, 12), 1.7, random.uniform(8, 45)])
        speed, turn = random.normal(0, 0.4, 3) * (1, 0, 1), random.uniform(-3, 3)
        first, last = sorted(random.integers(0, frames, 2).tolist())
        told, confidence = track, random.uniform(0.5, 9)
        said = "Car" if kind == "Van" else kind
        for frame in range(first, last + 1):
            here = place + speed * (frame - first)
            box = _pixels(random, here[0], here[2], size[0])
            hidden = f"{int(random.random() < 0.15)} {random.choice([0, 1, 2, 3], p=[0.5, 0.2, 0.2, 0.1])}"
            labels.append(_row(frame, track, kind, hidden, box, [*size, *here, turn]))
            if random.random() < 0.08:
                told, spare = spare, spare + 1
            if random.random() < 0.85:
                off = here + random.normal(0, 0.25, 3) * (1, 0.3, 1)
                guess = [*(size * random.uniform(0.92, 1.08, 3)), *off, turn + random.normal(0, 0.1)]
                near = (np.array(box) + random.normal(0, 4, 4)).tolist()
                score = confidence + random.normal()
                results.append(_row(frame, told, said, "-1 -1", near, guess) + f" {score:.4f}")
    for frame in range(frames):
        if random.random() < 0.4:
            labels.append(f"{frame} -1 DontCare -1 -1 -10 100 150 400 300 -1000 -1000 -1000 -10 -1 -1 -1")
        for _ in range(int(random.integers(0, 3))):
            kind, spare = str(random.choice(["Car", "Pedestrian"])), spare + 1
            x, z = random.uniform(-20, 20), random.uniform(6, 60)
            box, size = _pixels(random, x, z, 1.6), _KINDS[kind]
            wrong = _row(frame, spare, kind, "-1 -1", box, [*size, x, 1.7, z, 0.3])
            results.append(wrong + f" {random.normal(1, 1.5):.4f}")
    return labels, results


@pytest.fixture
def write_sequences() -> Write:
    """Write sequences of a seed: the folder with ``label_02/`` and ``seqmap.txt``, and the results'."""

    def write(folder: Path, seed: int) -> tuple[Path, Path]:
        random = np.random.default_rng(seed)
        results = folder / "results"
        for path in (folder / "label_02", results):
            path.mkdir(parents=True)
        for name, frames in _FRAMES.items():
            for part, lines in zip((folder / "label_02", results), _sequence(random, frames), strict=True):
                (part / f"{name}.txt").write_text("\n".join(lines) + "\n")
        lengths = [f"{name} empty 000000 {frames:06d}" for name, frames in _FRAMES.items()]
        (folder / "seqmap.txt").write_text("\n".join(lengths) + "\n")
        return folder, results

    return write
