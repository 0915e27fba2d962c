"""State of all tracks as two tables, of numbers and of counts, with one column per quantity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perception.types import EMBEDDING_DIM

Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

# Columns of TrackState.numbers.
#: The box in the map and its velocity.
CENTRE, SIZE, YAW, VELOCITY, BOX = slice(0, 3), slice(3, 6), 6, slice(7, 10), slice(0, 7)
#: Variance of a coordinate, its covariance with the speed along it, variance of that speed.
SPREAD = slice(10, 13)
#: Variance of the heading, votes for front over back, boxes in the mean size, last score and sum of scores.
YAW_SPREAD, VOTES, SIZES, SCORE, SCORE_SUM = range(13, 18)
NUMBERS = 18
#: Columns of TrackState.counts. ROW is -1 without a detection; REPORTED is 1 after the first report.
TRACK_ID, LABEL, HITS, MISSES, REPORTED, SEEN_NS, ROW = range(7)
COUNTS = 7


@dataclass
class TrackState:
    """Tracks, oldest first.

    Attributes:
        numbers: (N, 18) float64, columns as above; metres, radians, seconds, log-odds, in the map.
        counts: (N, 7) int64.
        embeddings: (N, 128) float32, mean direction of the boxes' embeddings; zeros without.
    """

    numbers: Float64Array
    counts: Int64Array
    embeddings: npt.NDArray[np.float32]

    @classmethod
    def of(cls, count: int) -> TrackState:
        """Return ``count`` rows of zeros."""
        return cls(
            np.zeros((count, NUMBERS)),
            np.zeros((count, COUNTS), np.int64),
            np.zeros((count, EMBEDDING_DIM), np.float32),
        )

    def __len__(self) -> int:
        return len(self.counts)

    def take(self, which: npt.NDArray[Any]) -> TrackState:
        """Return the rows of a mask or of numbers."""
        return TrackState(self.numbers[which], self.counts[which], self.embeddings[which])

    def joined(self, other: TrackState) -> TrackState:
        """Append the rows of another state."""
        return TrackState(
            np.concatenate([self.numbers, other.numbers]),
            np.concatenate([self.counts, other.counts]),
            np.concatenate([self.embeddings, other.embeddings]),
        )
