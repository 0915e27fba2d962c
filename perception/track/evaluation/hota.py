"""HOTA on image boxes, as TrackEval computes it for KITTI.

Source: Luiten et al., "HOTA: A Higher Order Metric for Evaluating Multi-Object Tracking" (IJCV 2021), with
TrackEval's rules for KITTI. Results that match an ignored label are removed. Unmatched results are removed if
they are small or lie in an unlabelled region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from perception.data.camera import DONT_CARE
from perception.track.evaluation.clear import LEAST_HEIGHT_PX, MOST_OCCLUSION, MOST_TRUNCATION
from perception.track.evaluation.table import Float64Array, SequencePair, rows_by_frame

#: Class to its similar classes, whose matches count neither as true nor as false positives.
NEIGHBOURS = {"car": ("van",), "pedestrian": ("person", "person_sitting")}
#: Overlap levels of the average.
LEVELS: Float64Array = np.arange(0.05, 0.99, 0.05)

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class HotaMeasures:
    """Means over all overlap levels; ratios in [0, 1], not percent.

    Attributes:
        hota: root of detection accuracy times association accuracy.
        deta: detection accuracy, the matched share of all labelled or reported boxes.
        assa: association accuracy, the agreement of tracks and labelled tracks over time.
        detre, detpr: recall and precision of boxes.
        assre, asspr: recall and precision of associations.
        loca: mean overlap of matches.
    """

    hota: float
    deta: float
    assa: float
    detre: float
    detpr: float
    assre: float
    asspr: float
    loca: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values by name."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class _HotaFrame:
    """Label track numbers and result track numbers of a frame, and their overlaps."""

    labels: npt.NDArray[np.int64]
    results: npt.NDArray[np.int64]
    overlap: Float64Array


@dataclass(frozen=True, eq=False)
class _HotaCounts:
    """Sums of one sequence, (L,) per overlap level."""

    found: Float64Array
    missed: Float64Array
    wrong: Float64Array
    accuracy: Float64Array
    recall: Float64Array
    precision: Float64Array
    overlap: Float64Array


def hota_measures(sequences: Sequence[SequencePair], label: str) -> HotaMeasures:
    """Compute HOTA and its parts for one class over all sequences; ``label`` in any case."""
    counts = [_count(_frames(pair, label.lower())) for pair in sequences]
    none = np.zeros(len(LEVELS))
    total = _HotaCounts(**{
        name: np.sum([getattr(count, name) for count in counts], axis=0) if counts else none
        for name in _HotaCounts.__dataclass_fields__
    })  # fmt: skip
    found = np.maximum(1, total.found)
    deta = total.found / np.maximum(1, total.found + total.missed + total.wrong)
    assa = total.accuracy / found
    loca = np.maximum(1e-10, total.overlap) / np.maximum(1e-10, total.found)
    parts = (
        np.sqrt(deta * assa),
        deta,
        assa,
        total.found / np.maximum(1, total.found + total.missed),
        total.found / np.maximum(1, total.found + total.wrong),
        total.recall / found,
        total.precision / found,
        loca,
    )
    return HotaMeasures(*(float(part.mean()) for part in parts))


def _frames(pair: SequencePair, label: str) -> list[_HotaFrame]:
    """Return the counting boxes of each frame, with track ids renumbered from 0."""
    labels, results = pair.labels, pair.results
    types, found = np.char.lower(labels.type), np.char.lower(results.type)
    objects = np.isin(types, (label, *NEIGHBOURS.get(label, ()))) & (labels.track_id >= 0)
    wanted = (found == label) & (results.track_id >= 0)
    excused = (
        (labels.occluded > MOST_OCCLUSION) | (np.trunc(labels.truncated) > MOST_TRUNCATION) | (types != label)
    )
    region = types == DONT_CARE.lower()
    overlaps = pair.overlaps
    inside = region[overlaps.label] & (overlaps.over_detection["2d"] > 0.5 + _EPSILON)
    excusable = results.box_2d[:, 3] - results.box_2d[:, 1] <= LEAST_HEIGHT_PX + _EPSILON
    excusable[overlaps.detection[inside]] = True
    lookup = pair.matrix("2d")
    kept = []
    for g, t in rows_by_frame(pair, objects, wanted):
        overlap = lookup.of(g, t)
        gone = _left_out(overlap, excused[g], excusable[t])
        kept.append((g[~excused[g]], t[~gone], overlap[~excused[g]][:, ~gone]))
    ids = [
        np.unique(np.concatenate([np.zeros(0, np.int64), *column]))
        for column in (
            [labels.track_id[g] for g, _, _ in kept],
            [results.track_id[t] for _, t, _ in kept],
        )
    ]
    return [
        _HotaFrame(
            np.searchsorted(ids[0], labels.track_id[g]), np.searchsorted(ids[1], results.track_id[t]), overlap
        )
        for g, t, overlap in kept
    ]


def _left_out(
    overlap: Float64Array, excused: npt.NDArray[np.bool_], excusable: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Mark results that do not count: matches of ignored labels, and excusable results without a match."""
    gone = excusable.copy()
    if overlap.size:
        near = np.where(overlap < 0.5 - _EPSILON, 0.0, overlap)
        row, column = linear_sum_assignment(-near)
        fine = near[row, column] > _EPSILON
        gone[column[fine]] = excused[row[fine]]
    return gone


def _count(frames: list[_HotaFrame]) -> _HotaCounts:
    sizes = [1 + max((int(ids.max()) for ids in column if len(ids)), default=-1)
             for column in ([f.labels for f in frames], [f.results for f in frames])]  # fmt: skip
    shared = np.zeros((sizes[0], sizes[1]))
    label_count, result_count = np.zeros((sizes[0], 1)), np.zeros((1, sizes[1]))
    for frame in frames:
        total = frame.overlap.sum(0)[None, :] + frame.overlap.sum(1)[:, None] - frame.overlap
        ratio = np.divide(frame.overlap, total, out=np.zeros_like(total), where=total > _EPSILON)
        shared[frame.labels[:, None], frame.results[None, :]] += ratio
        label_count[frame.labels] += 1
        result_count[0, frame.results] += 1
    alignment = shared / np.maximum(label_count + result_count - shared, _EPSILON)
    matches = np.zeros((len(LEVELS), *shared.shape))
    found, overlaps = np.zeros(len(LEVELS)), np.zeros(len(LEVELS))
    for frame in frames:
        if not frame.overlap.size:
            continue
        row, column = linear_sum_assignment(
            -(alignment[frame.labels[:, None], frame.results[None, :]] * frame.overlap)
        )
        overlap = frame.overlap[row, column]
        fine = overlap >= LEVELS[:, None] - _EPSILON
        found += fine.sum(1)
        overlaps += np.where(fine, overlap, 0.0).sum(1)
        matches[:, frame.labels[row], frame.results[column]] += fine
    union = np.maximum(1, label_count + result_count - matches)
    return _HotaCounts(
        found,
        label_count.sum() - found,
        result_count.sum() - found,
        (matches * (matches / union)).sum((1, 2)),
        (matches * (matches / np.maximum(1, label_count))).sum((1, 2)),
        (matches * (matches / np.maximum(1, result_count))).sum((1, 2)),
        overlaps,
    )
