"""Lists of frames for training and validation, in blocks of time that keep neighbours together."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from perception.io.text import write_text

#: Frames per block, and fewest blocks.
_BLOCK_FRAMES = 20
_LEAST_BLOCKS = 5
#: File with the digest of the lists.
_MARK = ".made-by-init"
#: Number of random choices to try for one with every class in both lists.
_TRIES = 200


class Split(NamedTuple):
    """Frames of both lists, in order, and the number of blocks."""

    train: list[str]
    val: list[str]
    blocks: int


def split_frames(
    frames: Sequence[str], names: Mapping[str, Sequence[str]], *, share: float, seed: int
) -> Split:
    """Choose blocks of following frames for validation.

    Args:
        frames: frames in order of time.
        names: names of the boxes by frame, to prefer choices with every class in both lists.
        share: fraction for validation.
        seed: seed of the choice.
    """
    if len(frames) < 2:
        return Split(list(frames), [], len(frames))
    count = min(len(frames), max(_LEAST_BLOCKS, len(frames) // _BLOCK_FRAMES))
    blocks = np.array_split(np.arange(len(frames)), count)
    held = min(count - 1, max(1, round(count * share)))
    random = np.random.default_rng(seed)
    best: tuple[int, list[int]] | None = None
    for _ in range(_TRIES):
        chosen = sorted(random.choice(count, held, replace=False).tolist())
        val = {frames[row] for block in chosen for row in blocks[block]}
        both = _names(val, names) & _names(set(frames) - val, names)
        if best is None or len(both) > best[0]:
            best = len(both), chosen
    assert best is not None
    held_rows = {int(row) for block in best[1] for row in blocks[block]}
    return Split(
        [name for row, name in enumerate(frames) if row not in held_rows],
        [name for row, name in enumerate(frames) if row in held_rows],
        count,
    )


def write_lists(folder: Path, lists: Mapping[str, Sequence[str]]) -> list[Path]:
    """Write lists of frames, and their digest, by which a later run recognises them."""
    folder.mkdir(exist_ok=True)
    paths = []
    for split, frames in lists.items():
        paths.append(folder / f"{split}.txt")
        write_text(paths[-1], "".join(f"{name}\n" for name in frames))
    write_text(folder / _MARK, _digest(folder) + "\n")
    return paths


def made_by_init(folder: Path) -> bool:
    """Return True if all lists of a folder are unchanged since :func:`write_lists`."""
    mark = folder / _MARK
    return mark.is_file() and mark.read_text(encoding="utf-8", errors="replace").strip() == _digest(folder)


def _digest(folder: Path) -> str:
    """Return a digest of the names and texts of the lists."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("*.txt")):
        found.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()


def in_time(frames: Sequence[str], times_ns: Mapping[str, int]) -> list[str]:
    """Sort frames by time if all have one, else by name with numeric order."""
    if all(name in times_ns for name in frames):
        return sorted(frames, key=lambda name: times_ns[name])
    return sorted(frames, key=_numbers_apart)


def _numbers_apart(name: str) -> list[tuple[int, int, str]]:
    parts = re.findall(r"\d{1,18}|\D+", name)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


def _names(frames: set[str], names: Mapping[str, Sequence[str]]) -> set[str]:
    return {name for frame in frames for name in names.get(frame, ())}
