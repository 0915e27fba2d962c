"""KITTI's tracking files: labels and results of sequences, and detections.

- Labels and results follow the readme of KITTI's tracking development kit: 17 fields per line, 18 with a
  score.
- Detections are AB3DMOT's: 15 comma-separated numbers per line.
- ``seqmap.txt`` has a line ``SSSS empty 000000 frames`` per sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from perception.errors import DataError
from perception.io.text import parse_count, parse_number, read_text, write_text

Float64Array = npt.NDArray[np.float64]

_FIELDS = (
    "frame", "track id", "type", "truncated", "occluded", "alpha", "left", "top", "right", "bottom",
    "height", "width", "length", "x", "y", "z", "rotation_y", "score",
)  # fmt: skip
_DETECTION_FIELDS = (
    "frame", "class", "left", "top", "right", "bottom", "score", "height", "width", "length",
    "x", "y", "z", "rotation_y", "alpha",
)  # fmt: skip


TableT = TypeVar("TableT", bound="ObjectTable")


@dataclass(frozen=True, eq=False)
class ObjectTable:
    """Rows of KITTI's files, in order. Camera frame, KITTI's conventions, metres and radians.

    Attributes:
        frame: (N,) int64 frame index.
        type: (N,) class names.
        truncated: (N,) float64.
        occluded: (N,) int64.
        alpha: (N,) float64 observation angle.
        box_2d: (N, 4) float64 left, top, right, bottom in pixels.
        size_m: (N, 3) float64 height, width, length.
        location: (N, 3) float64 centre of the bottom face.
        rotation_y: (N,) float64.
        score: (N,) float64; NaN for labels.
    """

    frame: npt.NDArray[np.int64]
    type: npt.NDArray[np.str_]
    truncated: Float64Array
    occluded: npt.NDArray[np.int64]
    alpha: Float64Array
    box_2d: Float64Array
    size_m: Float64Array
    location: Float64Array
    rotation_y: Float64Array
    score: Float64Array

    def __len__(self) -> int:
        return len(self.frame)

    def rows(self: TableT, which: npt.NDArray[Any]) -> TableT:
        """Return the rows of a mask or of indices."""
        return type(self)(**{name: column[which] for name, column in vars(self).items()})


@dataclass(frozen=True, eq=False)
class TrackRows(ObjectTable):
    """Rows of a tracking file.

    Attributes:
        track_id: (N,) int64; -1 for unlabelled regions and detections.
    """

    track_id: npt.NDArray[np.int64]

    @classmethod
    def joined(cls, parts: list[TrackRows]) -> TrackRows:
        """Concatenate rows."""
        names = cls.__dataclass_fields__
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    @classmethod
    def empty(cls) -> TrackRows:
        """Return no rows."""
        return _rows(np.zeros((0, 18)), np.zeros(0, np.str_))


def read_tracks(path: str | Path) -> TrackRows:
    """Read labels (17 fields per line) or results (18); an empty file has no rows.

    Raises:
        DataError: the file is missing, a line has another number of fields, or a field is no finite number.
    """
    path = Path(path)
    lines = [line.split() for line in read_text(path, "the tracks of a sequence").splitlines()]
    words = [line for line in lines if line]
    if any(len(line) not in (17, 18) for line in words):
        number, line = next(
            (n, line) for n, line in enumerate(lines, 1) if line and len(line) not in (17, 18)
        )
        raise DataError(
            f"{path}: line {number}: {len(line)} fields; expected 17 (frame, track id, and the 15 of a KITTI"
            " label) or 18 with a score. Correct the line."
        )
    types = np.array([line[2] for line in words], np.str_)
    cells = [[*line[:2], "0", *line[3:], *(["nan"] if len(line) == 17 else [])] for line in words]
    table = _numbers(path, cells, lines, _FIELDS, skipped="type")
    return _rows(table, types)


def write_tracks(path: str | Path, rows: TrackRows) -> None:
    """Write rows as results, sorted by frame and track id; raise ``DataError`` if that fails."""
    order = np.lexsort((rows.track_id, rows.frame))
    numbers = np.concatenate(
        [rows.alpha[:, None], rows.box_2d, rows.size_m, rows.location, rows.rotation_y[:, None]], axis=1
    )[order].tolist()
    ordered = rows.rows(order)
    heads = zip(
        ordered.frame.tolist(), ordered.track_id.tolist(), ordered.type.tolist(),
        ordered.truncated.tolist(), ordered.occluded.tolist(), strict=True,
    )  # fmt: skip
    form = "%d %d %s %g %d" + " %.6f" * 12 + " %.6f\n"
    lines = [
        form % (*head, *row, score)
        for head, row, score in zip(heads, numbers, ordered.score.tolist(), strict=True)
    ]
    write_text(Path(path), "".join(lines))


def read_detections(path: str | Path, label: str) -> TrackRows:
    """Read AB3DMOT's detections of one class in a sequence.

    Args:
        path: file with commas or white space between numbers.
        label: the class; class numbers in files are ignored.

    Raises:
        DataError: the file is missing, a line has another number of fields, or a field is no finite number.
    """
    path = Path(path)
    text = read_text(path, "the detections of a sequence")
    lines = [line.replace(",", " ").split() for line in text.splitlines()]
    for number, line in enumerate(lines, 1):
        if line and len(line) != len(_DETECTION_FIELDS):
            raise DataError(
                f"{path}: line {number}: {len(line)} fields; expected 15: {', '.join(_DETECTION_FIELDS)}"
            )
    found = _numbers(path, [line for line in lines if line], lines, _DETECTION_FIELDS)
    table = np.full((len(found), 18), -1.0)
    table[:, 0] = found[:, 0]
    table[:, 5], table[:, 17] = found[:, 14], found[:, 6]
    table[:, 6:10], table[:, 10:17] = found[:, 2:6], found[:, 7:14]
    return _rows(table, np.full(len(found), label))


def read_sequence_lengths(path: str | Path) -> dict[str, int]:
    """Read the number of frames of each sequence in ``seqmap.txt``, in order.

    Raises:
        DataError: the file is missing or empty, or a line has another form.
    """
    path = Path(path)
    found: dict[str, int] = {}
    for number, line in enumerate(read_text(path, "lines 'SSSS empty 000000 frames'").splitlines(), 1):
        words = line.split()
        if not words:
            continue
        count = parse_count(words[3]) if len(words) == 4 else None
        if count is None or words[0] in found:
            raise DataError(
                f"{path}: line {number} must be 'SSSS empty 000000 frames', one per sequence, got"
                f" {line[:60]!r}"
            )
        found[words[0]] = count
    if not found:
        raise DataError(f"{path}: no sequences. Write a line 'SSSS empty 000000 frames' for each.")
    return found


def _rows(table: Float64Array, types: npt.NDArray[np.str_]) -> TrackRows:
    return TrackRows(
        frame=table[:, 0].astype(np.int64),
        track_id=table[:, 1].astype(np.int64),
        type=types,
        truncated=table[:, 3],
        occluded=table[:, 4].astype(np.int64),
        alpha=table[:, 5],
        box_2d=table[:, 6:10],
        size_m=table[:, 10:13],
        location=table[:, 13:16],
        rotation_y=table[:, 16],
        score=table[:, 17],
    )


def _numbers(
    path: Path, cells: list[list[str]], lines: list[list[str]], names: tuple[str, ...], skipped: str = ""
) -> Float64Array:
    """Parse words to (N, fields); raise ``DataError`` with the place of the first invalid number."""
    if not cells:
        return np.zeros((0, len(names)))
    try:
        table = np.array(cells, np.float64)
    except ValueError:
        table = np.full((1, 1), np.nan)
    scored = table[:, :17] if len(names) == 18 else table
    if np.isfinite(scored).all() and (scored[:, 0] >= 0).all() and (np.abs(scored[:, :2]) < 2**53).all():
        return table
    for number, line in enumerate(lines, 1):
        for name, word in zip(names, line, strict=False):
            if name != skipped:
                parse_number(f"{path}: line {number}", name, word)
        if line and not 0 <= float(line[0]) < 2**53:
            raise DataError(f"{path}: line {number}: frame is {line[0]}. Write a whole number from 0.")
    return table
