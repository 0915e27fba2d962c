"""Labels and results of whole sequences, and where they overlap, as the measures of tracking need them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.data.camera import DONT_CARE
from perception.data.kitti.tracking import TrackRows, read_sequence_lengths, read_tracks
from perception.errors import DataError
from perception.evaluate.kitti.frames import ObjectTable
from perception.evaluate.kitti.overlap import Overlaps, find_overlaps

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SequencePair:
    """A sequence's labels beside what a tracker found.

    Attributes:
        name: of the sequence.
        frames: how many there are.
        labels: rows by frame; regions that are not labelled among them.
        results: rows by frame, with scores.
    """

    name: str
    frames: int
    labels: TrackRows
    results: TrackRows

    @cached_property
    def overlaps(self) -> Overlaps:
        """Pairs of a label and a result of one frame that share something."""
        return find_overlaps(_table(self.labels), _table(self.results))

    def matrix(self, metric: str, *, over: str = "union") -> PairLookup:
        """Overlaps as a lookup; ``over="detection"`` is the part of the result that is covered."""
        found = self.overlaps
        values: Any = found.over_union if over == "union" else found.over_detection
        return PairLookup(found.label, found.detection, values[metric], len(self.results))


class PairLookup:
    """Overlap of any label with any result of a sequence.

    Args:
        label, result: (P,) rows of the pairs that share something.
        value: (P,) their overlap.
        results: how many rows of results there are.
    """

    def __init__(
        self, label: npt.NDArray[np.int64], result: npt.NDArray[np.int64], value: Float64Array, results: int
    ) -> None:
        keys = label * max(1, results) + result
        order = np.argsort(keys, kind="stable")
        self._keys, self._values, self._results = keys[order], value[order], max(1, results)

    def of(self, label: npt.NDArray[np.int64], result: npt.NDArray[np.int64]) -> Float64Array:
        """(len(label), len(result)) overlaps of rows; 0 where they share nothing."""
        keys = label[:, None] * self._results + result[None, :]
        if not len(self._keys):
            return np.zeros(keys.shape)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._values[at], 0.0)


def load_sequences(
    labels: Path, results: Path, lengths: Mapping[str, int] | None = None
) -> list[SequencePair]:
    """The sequences of a folder laid out as KITTI's tracking data, with a tracker's files.

    Args:
        labels: folder with ``label_02/`` and, unless lengths are given, ``seqmap.txt``.
        results: folder with a file ``SSSS.txt`` for each sequence, or with ``data/`` that holds them.
        lengths: frames of each sequence to judge.

    Raises:
        DataError: a file is missing or damaged, a row lies behind the end of its sequence, an identity stands
            twice in one frame, or a result has no score.
    """
    folder = results / "data" if (results / "data").is_dir() else results
    lengths = read_sequence_lengths(labels / "seqmap.txt") if lengths is None else lengths
    return [
        SequencePair(
            name,
            count,
            _checked(labels / "label_02" / f"{name}.txt", count, scored=False),
            _checked(folder / f"{name}.txt", count, scored=True),
        )
        for name, count in lengths.items()
    ]


def _checked(path: Path, frames: int, *, scored: bool) -> TrackRows:
    rows = read_tracks(path)
    rows = rows.rows(np.argsort(rows.frame, kind="stable"))
    if len(rows) and rows.frame[-1] >= frames:
        raise DataError(
            f"{path}: frame {rows.frame[-1]} is behind the end: seqmap.txt says {frames} frames, from 0"
        )
    things = rows.rows((rows.type != DONT_CARE) & (rows.track_id >= 0))
    pairs = np.stack([things.frame, things.track_id], axis=1)
    unique, counts = np.unique(pairs, axis=0, return_counts=True)
    if scored and (counts > 1).any():
        frame, identity = unique[counts.argmax()]
        raise DataError(
            f"{path}: frame {frame} has track id {identity} more than once; identities are unique"
        )
    if scored and np.isnan(rows.score).any():
        raise DataError(f"{path}: rows without a score; results have 18 fields, the last one the score")
    return rows


def _table(rows: TrackRows) -> ObjectTable:
    return ObjectTable(
        frame=rows.frame,
        type=np.char.lower(rows.type) if len(rows) else rows.type,
        truncated=rows.truncated,
        occluded=rows.occluded,
        alpha=rows.alpha,
        box_2d=rows.box_2d,
        size_m=rows.size_m,
        location=rows.location,
        rotation_y=rows.rotation_y,
        score=rows.score,
    )
