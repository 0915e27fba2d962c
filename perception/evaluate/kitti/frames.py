"""Labels and results of many frames, from folders or from memory, as two tables of arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perception.data import CameraObject
from perception.data.kitti import read_objects
from perception.data.kitti.tracking import ObjectTable
from perception.errors import DataError
from perception.evaluate.options import MissingResults

#: A folder of KITTI ``.txt`` files, one list of objects per frame, or such lists by frame id.
FrameSource = str | Path | Sequence[Sequence[CameraObject]] | Mapping[str, Sequence[CameraObject]]

# Products of three larger sizes overflow float64.
_LARGEST = 1e100


def load_frames(
    labels: FrameSource,
    results: FrameSource,
    *,
    frame_ids: Iterable[str] | None = None,
    missing_results: MissingResults = "error",
) -> tuple[tuple[str, ...], ObjectTable, ObjectTable]:
    """Return the names, labels and results of the frames to evaluate, in order of frames and lines.

    Class names are in lower case, because the protocol ignores case.

    Args:
        labels: folder, sequence or mapping; it defines the frames.
        results: the same; results of frames without labels are ignored.
        frame_ids: evaluate only these (the index as text for sequences).
        missing_results: ``"error"``, ``"empty"`` (nothing was detected) or ``"skip"``.

    Raises:
        DataError: an invalid folder, file, line or value; frames without labels or results.
        ValueError: ``frame_ids`` contains a frame twice, or ``missing_results`` is unknown.
    """
    if missing_results not in ("error", "empty", "skip"):
        raise ValueError(f"missing_results must be 'error', 'empty' or 'skip', got {missing_results!r}")
    label_frames, result_frames = _open(labels, "labels"), _open(results, "results")
    wanted = _wanted_frames(label_frames, frame_ids)
    present = result_frames.frames.keys()
    missing = [frame_id for frame_id in wanted if frame_id not in present]
    if len(missing) == len(wanted):
        raise DataError(
            f"{result_frames.name}: no results for any of the {len(wanted)} frames in {label_frames.name}"
            f" ({_some(wanted)}). Give labels and results the same file names"
        )
    if missing and missing_results == "error":
        raise DataError(
            f"{result_frames.name}: no results for {len(missing)} of {len(wanted)} frames ({_some(missing)})."
            " Write an empty file for frames without detections, select frames with frame_ids, or set"
            " missing_results='empty' or 'skip' (--missing empty, --missing skip)"
        )
    if missing_results == "skip":
        wanted = [frame_id for frame_id in wanted if frame_id in present]
    found = _read_table(label_frames, wanted, scored=False), _read_table(result_frames, wanted, scored=True)
    return tuple(wanted), *found


@dataclass(frozen=True, eq=False)
class _Frames:
    """Frames in memory, or files that are read on demand."""

    name: str
    frames: Mapping[str, Sequence[CameraObject] | Path]

    def objects(self, frame_id: str) -> Sequence[CameraObject]:
        frame = self.frames.get(frame_id, ())
        return read_objects(frame) if isinstance(frame, Path) else frame

    def place(self, frame_id: str, index: int) -> str:
        """Return file and line of an object, or frame and index, for messages."""
        frame = self.frames[frame_id]
        if not isinstance(frame, Path):
            return f"{self.name}: frame {frame_id!r}, object {index}"
        lines = frame.read_text(encoding="utf-8").splitlines()
        return f"{frame}: line {[number for number, line in enumerate(lines, 1) if line.strip()][index]}"


def _open(source: FrameSource, name: str) -> _Frames:
    if not isinstance(source, str | Path):
        held = source if isinstance(source, Mapping) else {str(row): item for row, item in enumerate(source)}
        return _Frames(name, held)
    folder = Path(source)
    if not folder.is_dir():
        raise DataError(
            f"{folder}: {'not a' if folder.exists() else 'no such'} folder;"
            f" pass the folder with the {name}, one .txt file per frame"
        )
    files = {path.stem: path for path in sorted(folder.glob("*.txt"), key=lambda path: path.stem)}
    if not files:
        hint = f"; did you mean {folder / 'data'}?" if (folder / "data").is_dir() else ""
        raise DataError(f"{folder}: no .txt files; expected {name}, one file per frame{hint}")
    return _Frames(str(folder), files)


def _wanted_frames(labels: _Frames, frame_ids: Iterable[str] | None) -> list[str]:
    wanted = list(labels.frames if frame_ids is None else frame_ids)
    if not wanted:
        raise DataError(f"{labels.name}: no frames to evaluate; pass at least one frame with labels")
    if len(set(wanted)) != len(wanted):
        raise ValueError("frame_ids contains a frame twice; remove one")
    unknown = [frame_id for frame_id in wanted if frame_id not in labels.frames]
    if unknown:
        raise DataError(
            f"{labels.name}: no labels for {len(unknown)} of {len(wanted)} frames ({_some(unknown)});"
            " add them or remove the frames from frame_ids"
        )
    return wanted


def _some(frame_ids: list[str]) -> str:
    return ", ".join(map(str, frame_ids[:5])) + (", ..." if len(frame_ids) > 5 else "")


def _read_table(frames: _Frames, frame_ids: list[str], *, scored: bool) -> ObjectTable:
    by_frame = [frames.objects(frame_id) for frame_id in frame_ids]
    objects = [item for frame in by_frame for item in frame]
    rows = [
        _numbers(frames, frame_id, index, item, scored=scored)
        for frame_id, frame in zip(frame_ids, by_frame, strict=True)
        for index, item in enumerate(frame)
    ]
    numbers = np.array(rows, dtype=np.float64).reshape(-1, 15)
    return ObjectTable(
        frame=np.repeat(np.arange(len(frame_ids)), [len(frame) for frame in by_frame]),
        type=np.array([item.type.lower() for item in objects], dtype=np.str_),
        truncated=numbers[:, 0],
        occluded=numbers[:, 1].astype(np.int64),
        alpha=numbers[:, 2],
        box_2d=numbers[:, 3:7],
        size_m=numbers[:, 7:10],
        location=numbers[:, 10:13],
        rotation_y=numbers[:, 13],
        score=numbers[:, 14] if scored else np.full(len(objects), np.nan),
    )


def _numbers(
    frames: _Frames, frame_id: str, index: int, item: CameraObject, *, scored: bool
) -> tuple[float, ...]:
    size = (item.height_m, item.width_m, item.length_m)
    # Labels read from a result file may carry a score, which is meaningless here.
    score = (np.nan if item.score is None else item.score) if scored else 0.0
    head = (item.truncated, item.occluded, item.alpha)
    numbers = (*head, *item.box_2d, *size, *item.location, item.rotation_y, score)
    fine = [abs(number) <= _LARGEST for number in numbers]
    if not all(fine):
        missing = "no score; write it as the 16th field"
        wrong = missing if all(fine[:14]) else "a value is not finite; correct it or remove the object"
        raise DataError(f"{frames.place(frame_id, index)}: {wrong}")
    return numbers
