"""Detections take labels, best score first: every frame, class and limit at once.

Within a frame and class each detection, in the order of scores, takes the best label that is still free,
or none. Frames and classes do not touch each other, so the k-th detections of all of them are looked at
together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perception.evaluate.box_table import Mask, Rows

_PAIRS_PER_CHUNK = 1 << 18


class MatchCandidates(NamedTuple):
    """Pairs of a label and a detection that might match.

    Attributes:
        label: (P,) int64 rows of the table of labels.
        detection: (P,) int64 rows of the table of detections.
        order: (P,) float64, less is better.
        allowed: (T, P) bool: whether the pair may match at each of T limits.
    """

    label: Rows
    detection: Rows
    order: npt.NDArray[np.float64]
    allowed: npt.NDArray[np.bool_]


def frame_pairs(label_frame: Rows, detection_frame: Rows) -> Iterator[tuple[Rows, Rows]]:
    """Rows of labels and detections of the same frame, in chunks of bounded size; at least one chunk.

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
    """(M,) row numbers by falling score; among equals the first row comes first, or the last."""
    if later_first:
        return np.argsort(score, kind="stable")[::-1]
    return np.argsort(-score, kind="stable")


def take_labels(
    candidates: MatchCandidates,
    detection_group: Rows,
    order: Rows,
    label_count: int,
    free: Mask | None = None,
) -> Rows:
    """The label of each detection.

    Args:
        candidates: pairs; a label has candidates of one group only.
        detection_group: (M,) int64, the frame and class that each detection is of.
        order: (M,) detections in the order in which they take.
        label_count: N.
        free: (T, N) bool, labels that can be taken; None: all.

    Returns:
        (T, M) int64 rows of labels, -1 where there is none.
    """
    limits, count = len(candidates.allowed), len(detection_group)
    taken = np.full((limits, count), -1)
    if len(candidates.label) == 0:
        return taken
    open_labels = np.ones((limits, label_count), np.bool_) if free is None else free.copy()
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
    """The first row of each group, then the second ones, and so on."""
    order = np.argsort(group, kind="stable")
    same = group[order]
    turn = np.arange(len(group)) - np.searchsorted(same, same, side="left")
    by_turn = order[np.argsort(turn, kind="stable")]
    ends = np.cumsum(np.bincount(turn))
    yield from np.split(by_turn, ends[:-1])
