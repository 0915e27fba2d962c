"""Labels and results of many frames, from folders or from memory, as two tables of arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from perception.errors import DataError
from perception.io.kitti import KittiObject, read_objects

Float64Array = npt.NDArray[np.float64]

#: A folder of KITTI ``.txt`` files, one list of objects a frame, or such lists by frame id.
FrameSource = str | Path | Sequence[Sequence[KittiObject]] | Mapping[str, Sequence[KittiObject]]
#: What to do with frames that have labels but no results.
MissingResults = Literal["error", "empty", "skip"]

# Beyond this, products of three sizes leave float64.
_LARGEST = 1e100


@dataclass(frozen=True, eq=False)
class ObjectTable:
    """Objects of all frames, in the order of frames and lines. Camera frame, KITTI's conventions.

    Attributes:
        frame: (M,) int64 index of the frame, not decreasing.
        type: (M,) class names in lower case (the protocol ignores case).
        truncated: (M,) float64.
        occluded: (M,) int64.
        alpha: (M,) float64 observation angle, radians.
        box_2d: (M, 4) float64 left, top, right, bottom in pixels.
        size_m: (M, 3) float64 height, width, length in metres.
        location: (M, 3) float64 bottom centre in metres.
        rotation_y: (M,) float64 radians.
        score: (M,) float64; NaN for labels.
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

    def rows(self, which: npt.NDArray[np.bool_]) -> ObjectTable:
        """The objects of a (M,) mask."""
        return ObjectTable(**{name: column[which] for name, column in vars(self).items()})


class FramePair(NamedTuple):
    """Labels and detections of the frames that are evaluated."""

    frame_ids: tuple[str, ...]
    labels: ObjectTable
    detections: ObjectTable


def load_frames(
    labels: FrameSource,
    results: FrameSource,
    *,
    frame_ids: Iterable[str] | None = None,
    missing_results: MissingResults = "error",
) -> FramePair:
    """Read labels and results of the frames to evaluate.

    Args:
        labels: folder, sequence or mapping; it defines the frames.
        results: the same; results of frames without labels are not looked at.
        frame_ids: evaluate these only (the index as text, where labels are a sequence).
        missing_results: ``"error"``; ``"empty"``: nothing was detected there; ``"skip"``: leave them out.

    Raises:
        DataError: a folder, file, line or value that cannot be used; frames without labels or results.
        ValueError: ``frame_ids`` names a frame twice, or ``missing_results`` is unknown.
    """
    if missing_results not in ("error", "empty", "skip"):
        raise ValueError(f"missing_results must be 'error', 'empty' or 'skip', got {missing_results!r}")
    label_frames, result_frames = _open(labels, "labels"), _open(results, "results")
    wanted = _wanted_frames(label_frames, frame_ids)
    present = set(result_frames.frame_ids)
    missing = [frame_id for frame_id in wanted if frame_id not in present]
    if len(missing) == len(wanted):
        raise DataError(
            f"{result_frames.name}: no results for any of the {len(wanted)} frames in {label_frames.name}"
            f" ({_some(wanted)}); the frame ids (file names) of labels and results must be the same"
        )
    if missing and missing_results == "error":
        raise DataError(
            f"{result_frames.name}: no results for {len(missing)} of {len(wanted)} frames ({_some(missing)});"
            " write an empty file where nothing was detected, choose frames with frame_ids,"
            " or say missing_results='empty' or 'skip' (--missing empty, --missing skip)"
        )
    if missing_results == "skip":
        wanted = [frame_id for frame_id in wanted if frame_id in present]
    return FramePair(
        frame_ids=tuple(wanted),
        labels=_read_table(label_frames, wanted, scored=False),
        detections=_read_table(result_frames, wanted, scored=True),
    )


class _Folder:
    """Frames in a folder of text files, read when asked for."""

    def __init__(self, folder: Path) -> None:
        self.name = str(folder)
        self._folder = folder
        self.frame_ids = sorted(path.stem for path in folder.glob("*.txt"))

    def objects(self, frame_id: str) -> Sequence[KittiObject]:
        return read_objects(self._path(frame_id))

    def place(self, frame_id: str, index: int) -> str:
        """File and line of an object, for messages."""
        lines = self._path(frame_id).read_text(encoding="utf-8").splitlines()
        numbers = [number for number, line in enumerate(lines, 1) if line.strip()]
        return f"{self._path(frame_id)}: line {numbers[index]}"

    def _path(self, frame_id: str) -> Path:
        return self._folder / f"{frame_id}.txt"


class _Memory:
    """Frames that the caller already holds."""

    def __init__(self, frames: Mapping[str, Sequence[KittiObject]], name: str) -> None:
        self.name = name
        self._frames = frames
        self.frame_ids = list(frames)

    def objects(self, frame_id: str) -> Sequence[KittiObject]:
        return self._frames[frame_id]

    def place(self, frame_id: str, index: int) -> str:
        """Frame and index of an object, for messages."""
        return f"{self.name}: frame {frame_id!r}, object {index}"


_Frames = _Folder | _Memory


def _open(source: FrameSource, name: str) -> _Frames:
    if isinstance(source, str | Path):
        folder = Path(source)
        if not folder.is_dir():
            raise DataError(
                f"{folder}: {'not a' if folder.exists() else 'no such'} folder;"
                f" name the folder with the {name}, one .txt file a frame"
            )
        frames = _Folder(folder)
        if not frames.frame_ids:
            hint = f"; did you mean {folder / 'data'}?" if (folder / "data").is_dir() else ""
            raise DataError(f"{folder}: no .txt files; expected {name}, one file a frame{hint}")
        return frames
    if isinstance(source, Mapping):
        return _Memory(source, name)
    return _Memory({str(index): objects for index, objects in enumerate(source)}, name)


def _wanted_frames(labels: _Frames, frame_ids: Iterable[str] | None) -> list[str]:
    wanted = list(labels.frame_ids if frame_ids is None else frame_ids)
    if not wanted:
        raise DataError(f"{labels.name}: no frames to evaluate; give at least one frame with labels")
    if len(set(wanted)) != len(wanted):
        raise ValueError("frame_ids must not name a frame twice")
    known = set(labels.frame_ids)
    unknown = [frame_id for frame_id in wanted if frame_id not in known]
    if unknown:
        raise DataError(
            f"{labels.name}: no labels for {len(unknown)} of {len(wanted)} frames ({_some(unknown)});"
            " add them or take them out of frame_ids"
        )
    return wanted


def _some(frame_ids: list[str]) -> str:
    return ", ".join(map(str, frame_ids[:5])) + (", ..." if len(frame_ids) > 5 else "")


def _read_table(frames: _Frames, frame_ids: list[str], *, scored: bool) -> ObjectTable:
    present = set(frames.frame_ids)
    by_frame = [frames.objects(frame_id) if frame_id in present else () for frame_id in frame_ids]
    objects = [item for frame in by_frame for item in frame]
    counts = np.array([len(frame) for frame in by_frame], dtype=np.int64)
    numbers = np.array([_numbers(item, scored=scored) for item in objects], dtype=np.float64).reshape(-1, 15)
    _check_numbers(frames, frame_ids, counts, numbers)
    return ObjectTable(
        frame=np.repeat(np.arange(len(frame_ids)), counts),
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


def _numbers(item: KittiObject, *, scored: bool) -> tuple[float, ...]:
    size = (item.height_m, item.width_m, item.length_m)
    # Labels read from a result file may carry a score; it has no meaning here.
    score = (np.nan if item.score is None else item.score) if scored else 0.0
    head = (item.truncated, item.occluded, item.alpha)
    return (*head, *item.box_2d, *size, *item.location, item.rotation_y, score)


def _check_numbers(
    frames: _Frames, frame_ids: list[str], counts: npt.NDArray[np.int64], numbers: Float64Array
) -> None:
    wrong = ~(np.abs(numbers) <= _LARGEST)
    if not wrong.any():
        return
    row = int(wrong.any(axis=1).argmax())
    frame = int(np.searchsorted(np.cumsum(counts), row, side="right"))
    place = frames.place(frame_ids[frame], row - int(counts[:frame].sum()))
    if wrong[row, :14].any():
        raise DataError(f"{place}: a number is not finite; correct it or leave the object out")
    raise DataError(f"{place}: no score; a result needs its score as the 16th field")
