"""Labels and results of whole sequences with their overlaps, as the tracking metrics use them."""

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
from perception.evaluate.kitti.overlap import Overlaps, find_overlaps

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SequencePair:
    """Labels and tracking results of a sequence.

    Attributes:
        name: of the sequence.
        frames: how many there are.
        labels: rows by frame, including unlabelled regions.
        results: rows by frame, with scores.
    """

    name: str
    frames: int
    labels: TrackRows
    results: TrackRows

    @cached_property
    def overlaps(self) -> Overlaps:
        """Overlapping pairs of a label and a result of the same frame."""
        return find_overlaps(self.labels, self.results)

    def matrix(self, metric: str, *, over: str = "union") -> PairLookup:
        """Return a lookup of overlaps; ``over="detection"`` is the covered share of the result."""
        found = self.overlaps
        values: Any = found.over_union if over == "union" else found.over_detection
        return PairLookup(found.label, found.detection, values[metric], len(self.results))


def rows_by_frame(
    pair: SequencePair, label_mask: npt.NDArray[np.bool_], result_mask: npt.NDArray[np.bool_]
) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Return the masked label rows and result rows of each frame."""
    parts = []
    for table, mask in ((pair.labels, label_mask), (pair.results, result_mask)):
        rows = np.flatnonzero(mask)
        parts.append(np.split(rows, np.searchsorted(table.frame[rows], np.arange(1, pair.frames))))
    return list(zip(*parts, strict=True))


class PairLookup:
    """Overlap of any label with any result of a sequence.

    Args:
        label, result: (P,) rows of the overlapping pairs.
        value: (P,) their overlap.
        results: number of result rows.
    """

    def __init__(
        self, label: npt.NDArray[np.int64], result: npt.NDArray[np.int64], value: Float64Array, results: int
    ) -> None:
        keys = label * max(1, results) + result
        order = np.argsort(keys, kind="stable")
        self._keys, self._values, self._results = keys[order], value[order], max(1, results)

    def of(self, label: npt.NDArray[np.int64], result: npt.NDArray[np.int64]) -> Float64Array:
        """Return (len(label), len(result)) overlaps of rows; 0 where they do not overlap."""
        keys = label[:, None] * self._results + result[None, :]
        if not len(self._keys):
            return np.zeros(keys.shape)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._values[at], 0.0)


def load_sequences(
    labels: Path, results: Path, lengths: Mapping[str, int] | None = None
) -> list[SequencePair]:
    """Load the sequences of a folder in KITTI's tracking layout, with a tracker's files.

    Args:
        labels: folder with ``label_02/`` and, unless lengths are given, ``seqmap.txt``.
        results: folder with a file ``SSSS.txt`` per sequence, or with ``data/`` that holds them.
        lengths: frames of each sequence to evaluate.

    Raises:
        DataError: a file is missing or damaged, a row lies beyond the end of its sequence, a track id repeats
            in a frame, or a result has no score.
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
            f"{path}: frame {rows.frame[-1]} is beyond the end. seqmap.txt lists {frames} frames, numbered"
            " from 0; correct one of the two files"
        )
    things = rows.rows((rows.type != DONT_CARE) & (rows.track_id >= 0))
    pairs = np.stack([things.frame, things.track_id], axis=1)
    unique, counts = np.unique(pairs, axis=0, return_counts=True)
    if scored and (counts > 1).any():
        frame, identity = unique[counts.argmax()]
        raise DataError(
            f"{path}: frame {frame} has track id {identity} twice; make track ids unique in each frame"
        )
    if scored and np.isnan(rows.score).any():
        raise DataError(f"{path}: rows without a score; write 18 fields per row, the score last")
    return rows
