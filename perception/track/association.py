"""Assignment of boxes to tracks: gates, costs of the pairs inside them, and the cheapest assignment."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree

from perception.track.state import Float64Array, Int64Array

#: With more entries, a k-d tree replaces the distance table.
_TABLE = 1 << 14
#: Larger problems are matched greedily.
_LARGEST = 256
_FAR = 1e6


class Pairs(NamedTuple):
    """Candidate pairs: (P,) track rows and (P,) box rows."""

    track: Int64Array
    box: Int64Array


def near_pairs(tracks: Float64Array, boxes: Float64Array, gates: Float64Array) -> Pairs:
    """Find pairs whose ground distance lies within the track's gate.

    Args:
        tracks: (N, 2) predicted centres.
        boxes: (M, 2) centres.
        gates: (N,) metres.
    """
    if len(tracks) * len(boxes) <= _TABLE:
        offset = tracks[:, None, :] - boxes[None, :, :]
        distance = (offset * offset).sum(2)
        return Pairs(*np.nonzero(distance <= (gates * gates)[:, None]))
    found = cKDTree(boxes).query_ball_point(tracks, gates, return_sorted=True)
    counts = np.fromiter(map(len, found), np.int64, len(found))
    columns = np.concatenate([np.zeros(0, np.int64), *[np.asarray(row, np.int64) for row in found if row]])
    return Pairs(np.repeat(np.arange(len(tracks)), counts), columns)


def assign(
    pairs: Pairs, cost: Float64Array, tracks: int, boxes: int, *, alone: Float64Array | float = _FAR
) -> Pairs:
    """Choose the cheapest pairs, with each track and each box used at most once.

    Small problems are solved exactly, large ones greedily.

    Args:
        pairs: candidates.
        cost: (P,) finite.
        tracks, boxes: how many there are.
        alone: cost of leaving a track and a box unpaired, scalar or (P,). Pairs that cost more are not made.
            By default as many pairs as possible are made.
    """
    spared = cost - alone
    if tracks <= _LARGEST and boxes <= _LARGEST:
        table = np.zeros((tracks, boxes))
        table[pairs.track, pairs.box] = np.minimum(spared, 0.0)
        row, column = linear_sum_assignment(table)
        fine = table[row, column] < 0
        return Pairs(row[fine], column[fine])
    fine = spared < 0
    return _greedy(Pairs(pairs.track[fine], pairs.box[fine]), spared[fine], tracks, boxes)


def _greedy(pairs: Pairs, cost: Float64Array, tracks: int, boxes: int) -> Pairs:
    order = np.lexsort((pairs.box, pairs.track, cost))
    partner = np.full(tracks, -1, np.int64)
    taken = np.zeros(boxes, np.bool_).tolist()
    matched = partner.tolist()
    for track, box in zip(pairs.track[order].tolist(), pairs.box[order].tolist(), strict=True):
        if matched[track] < 0 and not taken[box]:
            matched[track], taken[box] = box, True
    partner = np.array(matched, np.int64)
    (rows,) = np.nonzero(partner >= 0)
    return Pairs(rows, partner[rows])


def distance_cost(
    tracks: Float64Array, boxes: Float64Array, gates: Float64Array, turn: Float64Array, size: Float64Array
) -> Float64Array:
    """Return (P,) costs of aligned rows: distance over gate, plus penalties for heading and size differences.

    Args:
        tracks, boxes: (P, 7) in the map.
        gates: (P,) metres.
        turn: (P,) cost of a quarter turn; a half turn is free.
        size: (P,) cost of a size difference of one half.
    """
    offset = tracks[:, :3] - boxes[:, :3]
    distance = np.sqrt((offset * offset).sum(1)) / gates
    larger, smaller = np.maximum(tracks[:, 3:6], boxes[:, 3:6]), np.minimum(tracks[:, 3:6], boxes[:, 3:6])
    unlike = 1.0 - (smaller / np.maximum(larger, 1e-9)).min(1)
    return np.asarray(distance + turn * np.abs(np.sin(tracks[:, 6] - boxes[:, 6])) + 2 * size * unlike)
