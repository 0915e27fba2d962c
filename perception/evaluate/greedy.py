"""Greedy matching of detections to labels by score, for all frames, classes and limits at once.

Within a frame and class, each detection in score order takes the best free label, or none. Frames and classes
are independent, so the k-th detections of all of them are processed together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perception.evaluate.box_table import Rows

_PAIRS_PER_CHUNK = 1 << 18


class MatchCandidates(NamedTuple):
    """Pairs of a label and a detection that may match.

    Attributes:
        label: (P,) int64 rows of the label table.
        detection: (P,) int64 rows of the detection table.
        order: (P,) float64, smaller is better.
        allowed: (T, P) bool, True if the pair may match at each of T limits.
    """

    label: Rows
    detection: Rows
    order: npt.NDArray[np.float64]
    allowed: npt.NDArray[np.bool_]


def frame_pairs(label_frame: Rows, detection_frame: Rows) -> Iterator[tuple[Rows, Rows]]:
    """Yield rows of labels and detections of the same frame, in chunks of bounded size; at least one chunk.

    Args:
        label_frame, detection_frame: (N,) and (M,) int64, not decreasing.
    """
    first = np.searchsorted(label_frame, detection_frame, side="left")
    count = np.searchsorted(label_frame, detection_frame, side="right") - first
    total = np.concatenate(([0], np.cumsum(count)))
    start = 0
    while start < len(detection_frame) or start == 0:
        stop = int(np.searchsorted(total, total[start] + _PAIRS_PER_CHUNK, side="right")) - 1
        stop = min(max(stop, start + 1), len(detection_frame))
        detection = np.repeat(np.arange(start, stop), count[start:stop])
        within = np.arange(len(detection)) - (total[detection] - total[start])
        yield first[detection] + within, detection
        start = max(stop, 1)


def ranked(score: npt.NDArray[np.float64], *, later_first: bool = False) -> Rows:
    """Return (M,) row numbers by decreasing score; ties in row order, or reversed."""
    if later_first:
        return np.argsort(score, kind="stable")[::-1]
    return np.argsort(-score, kind="stable")


def take_labels(candidates: MatchCandidates, detection_group: Rows, order: Rows, label_count: int) -> Rows:
    """Assign labels to detections.

    Args:
        candidates: pairs; a label has candidates in one group only.
        detection_group: (M,) int64, frame and class of each detection.
        order: (M,) detections in the order of assignment.
        label_count: N.

    Returns:
        (T, M) int64 label rows, or -1.
    """
    limits, count = len(candidates.allowed), len(detection_group)
    taken = np.full((limits, count), -1)
    if len(candidates.label) == 0:
        return taken
    open_labels = np.ones((limits, label_count), np.bool_)
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    pairs = np.lexsort((candidates.label, candidates.order, place[candidates.detection]))
    found, start, length = np.unique(
        place[candidates.detection[pairs]], return_index=True, return_counts=True
    )
    asking = order[found]
    for chosen in _turns(detection_group[asking]):
        rank = np.arange(int(length[chosen].max()))
        column = pairs[np.minimum(start[chosen, None] + rank, len(pairs) - 1)]
        label = candidates.label[column]
        fits = candidates.allowed[:, column] & open_labels[:, label] & (rank < length[chosen, None])
        limit, row = np.nonzero(fits.any(axis=2))
        best = label[row, fits.argmax(axis=2)[limit, row]]
        open_labels[limit, best] = False
        taken[limit, asking[chosen[row]]] = best
    return taken


def _turns(group: Rows) -> Iterator[Rows]:
    """Yield the first row of each group, then the second rows, and so on."""
    order = np.argsort(group, kind="stable")
    same = group[order]
    turn = np.arange(len(group)) - np.searchsorted(same, same, side="left")
    by_turn = order[np.argsort(turn, kind="stable")]
    ends = np.cumsum(np.bincount(turn))
    yield from np.split(by_turn, ends[:-1])
