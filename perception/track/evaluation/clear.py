"""CLEAR MOT averaged over recall, as AB3DMOT defines it: sAMOTA, AMOTA, AMOTP, and MOTA at its best score.

Source: Weng et al., "3D Multi-Object Tracking: A Baseline and New Evaluation Metrics" (IROS 2020), and its
program. This module reproduces the details of the program that change figures:

- The score of a result is the mean score of its track.
- A result that matched at a lower threshold is never excused at a higher one.
- Ignored labels (truncated, heavily occluded, neighbouring class) still match, and their results are not
  false positives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from perception.data.camera import DONT_CARE
from perception.track.evaluation.table import Float64Array, SequencePair, rows_by_frame

#: Class to its similar class, whose matches count neither as true nor as false positives.
NEIGHBOURS: Mapping[str, str] = {"car": "van", "pedestrian": "person_sitting"}
#: Least 3D overlap of a match.
LEAST_OVERLAP = 0.25
#: Results up to this height in the image are excused.
LEAST_HEIGHT_PX = 25.0
#: Labels count up to this occlusion and truncation.
MOST_OCCLUSION, MOST_TRUNCATION = 2, 0

_SAMPLES = 40
_NOT = 1e9
_ALL = -10000.0
#: Keeps a track whose rounded mean equals the threshold.
_ABOVE = 1.0 + 1e-12


@dataclass(frozen=True)
class ClearMeasures:
    """AB3DMOT's metrics of one class; ratios in [0, 1], not percent.

    Attributes:
        samota: scaled MOTA averaged over 40 recall positions; the figure that ranks trackers.
        amota, amotp: MOTA and MOTP averaged over the same positions.
        mota: at the threshold where it is greatest; minus infinity without labels. Fields below: same
            threshold.
        motp: mean 3D overlap.
        recall, precision, f1: of boxes.
        mostly_tracked, partly_tracked, mostly_lost: shares of the labelled tracks.
        id_switches: labelled objects whose track id changes.
        fragments: labelled objects whose track breaks.
        true_positives, false_positives, false_negatives: boxes.
        labels: boxes that count.
        threshold: least mean score of a counted track.
    """

    samota: float
    amota: float
    amotp: float
    mota: float
    motp: float
    recall: float
    precision: float
    f1: float
    mostly_tracked: float
    partly_tracked: float
    mostly_lost: float
    id_switches: int
    fragments: int
    true_positives: int
    false_positives: int
    false_negatives: int
    labels: int
    threshold: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values by name."""
        return asdict(self)


def clear_measures(sequences: Sequence[SequencePair], label: str) -> ClearMeasures:
    """Compute the metrics of one class over all sequences; ``label`` in any case."""
    held = [_Sequence(pair, label.lower()) for pair in sequences]
    every = _count(held, _ALL)
    thresholds, recalls = _thresholds(every.scores * _ABOVE, every.true_positives + every.false_negatives)
    best, best_threshold, sums = 0.0, _ALL, np.zeros(3)
    for threshold, recall in zip(thresholds, recalls, strict=True):
        counts = _count(held, threshold)
        sums += counts.scaled_mota(recall), counts.mota, counts.motp
        if counts.mota > best:
            best, best_threshold = counts.mota, threshold
    final = _count(held, best_threshold)
    samota, amota, amotp = (float(value) for value in sums / _SAMPLES)
    return final.measures(samota, amota, amotp, best_threshold)


@dataclass(frozen=True, eq=False)
class _ClearFrame:
    """Label rows and result rows of a frame, and their overlaps."""

    labels: npt.NDArray[np.int64]
    results: npt.NDArray[np.int64]
    overlap: Float64Array


class _Sequence:
    """Threshold-independent data of a sequence, and which results ever matched."""

    def __init__(self, pair: SequencePair, label: str) -> None:
        labels, results = pair.labels, pair.results
        kinds = (label, NEIGHBOURS.get(label, label))
        types, found = np.char.lower(labels.type), np.char.lower(results.type)
        objects = np.isin(types, kinds) & (labels.track_id != -1)
        wanted = np.isin(found, kinds) & (results.track_id != -1)
        self.excused_labels = (
            (labels.occluded > MOST_OCCLUSION)
            | (np.trunc(labels.truncated) > MOST_TRUNCATION)
            | (types != label)
        )
        small = np.abs(results.box_2d[:, 1] - results.box_2d[:, 3]) <= LEAST_HEIGHT_PX
        self.excusable = small | (found != label) | _covered(pair, types == DONT_CARE.lower())
        self.matched_once = np.zeros(len(results), np.bool_)
        self.label_ids, self.result_ids = labels.track_id, results.track_id
        overlap = pair.matrix("3d")
        self.frames = [_ClearFrame(g, t, overlap.of(g, t)) for g, t in rows_by_frame(pair, objects, wanted)]
        identities, which = np.unique(results.track_id[wanted], return_inverse=True)
        sums = np.bincount(which, results.score[wanted], len(identities))
        self.mean_score = np.full(len(results), -np.inf)
        self.mean_score[wanted] = (sums / np.bincount(which, minlength=len(identities)))[which]


def _covered(pair: SequencePair, region: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Mark results that an unlabelled region covers by more than half."""
    overlaps = pair.overlaps
    inside = region[overlaps.label] & (overlaps.over_detection["2d"] > 0.5)
    covered = np.zeros(len(pair.results), np.bool_)
    covered[overlaps.detection[inside]] = True
    return covered


@dataclass
class _ClearCounts:
    """Sums over all frames at one threshold."""

    labels: int = 0
    true_positives: int = 0
    false_positives: int = 0
    false_negatives: int = 0
    overlap: float = 0.0
    id_switches: int = 0
    fragments: int = 0
    tracked: tuple[int, int, int] = (0, 0, 0)
    tracks: int = 0
    scores: Float64Array = field(default_factory=lambda: np.zeros(0))

    @property
    def _errors(self) -> int:
        return self.false_negatives + self.false_positives + self.id_switches

    @property
    def mota(self) -> float:
        return 1 - self._errors / self.labels if self.labels else -np.inf

    @property
    def motp(self) -> float:
        return self.overlap / self.true_positives if self.true_positives else 0.0

    def scaled_mota(self, recall: float) -> float:
        """Return MOTA in [0, 1], relative to the best value possible at this recall."""
        if not self.labels:
            return -np.inf
        ratio = 1.0 - (self._errors - (1.0 - recall) * self.labels) / (recall * self.labels)
        return min(1.0, max(0.0, ratio))

    def measures(self, samota: float, amota: float, amotp: float, threshold: float) -> ClearMeasures:
        found, wanted = self.true_positives + self.false_positives, self.true_positives + self.false_negatives
        recall = self.true_positives / wanted if found and wanted else 0.0
        precision = self.true_positives / found if found and wanted else 0.0
        f1 = 2 * precision * recall / (precision + recall) if abs(recall + precision) >= 1e-6 else 0.0
        mostly, partly, lost = (count / self.tracks if self.tracks else 0.0 for count in self.tracked)
        return ClearMeasures(
            samota, amota, amotp, self.mota, self.motp, recall, precision, f1, mostly, partly, lost,
            self.id_switches, self.fragments, self.true_positives, self.false_positives, self.false_negatives,
            self.labels, threshold,
        )  # fmt: skip


def _count(sequences: Sequence[_Sequence], threshold: float) -> _ClearCounts:
    total = _ClearCounts()
    scores: list[Float64Array] = []
    for sequence in sequences:
        histories: dict[int, list[tuple[int, bool]]] = {}
        for frame in sequence.frames:
            scores.append(_count_frame(sequence, frame, threshold, total, histories))
        for history in histories.values():
            _count_history([track for track, _ in history], [excused for _, excused in history], total)
    return replace(total, scores=np.concatenate([np.zeros(0), *scores]))


def _count_frame(
    sequence: _Sequence,
    frame: _ClearFrame,
    threshold: float,
    total: _ClearCounts,
    histories: dict[int, list[tuple[int, bool]]],
) -> Float64Array:
    """Add one frame to the sums; return the scores of its matched results."""
    kept = ~(sequence.mean_score[frame.results] < threshold)
    results, overlap = frame.results[kept], frame.overlap[:, kept]
    label, result = _assign(overlap)
    matched = results[result]
    sequence.matched_once[matched] = True
    excused_results = sequence.excusable[results] & ~sequence.matched_once[results]
    excused = sequence.excused_labels[frame.labels]
    tracks = np.full(len(frame.labels), -1, np.int64)
    tracks[label] = sequence.result_ids[matched]
    missed = tracks == -1
    total.labels += int((~excused).sum())
    total.true_positives += len(label)
    total.false_positives += len(results) - len(label) - int(excused_results.sum())
    total.false_negatives += int((missed & ~excused).sum())
    total.overlap += float(overlap[label, result].sum())
    identities = sequence.label_ids[frame.labels].tolist()
    for identity, track, skip in zip(identities, tracks.tolist(), excused.tolist(), strict=True):
        histories.setdefault(identity, []).append((track, skip))
    return sequence.mean_score[matched]


def _assign(overlap: Float64Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return matched rows and columns: as many as possible, then by greatest overlap."""
    if not overlap.size:
        none = np.zeros(0, np.int64)
        return none, none
    cost = 1 - overlap
    near = cost <= 1 - LEAST_OVERLAP
    row, column = linear_sum_assignment(np.where(near, cost, _NOT))
    fine = near[row, column]
    return row[fine], column[fine]


def _count_history(tracks: list[int], excused: list[bool], total: _ClearCounts) -> None:
    """Add the id switches, fragments and coverage of one labelled object."""
    if all(excused):
        return
    total.tracks += 1
    mostly, partly, lost = total.tracked
    if all(track == -1 for track in tracks):
        total.tracked = mostly, partly, lost + 1
        return
    last, found = tracks[0], int(tracks[0] >= 0)
    end = len(tracks) - 1
    for at in range(1, end + 1):
        if excused[at]:
            last = -1
            continue
        now, before = tracks[at], tracks[at - 1]
        if now != -1 and last != -1:
            total.id_switches += last != now and before != -1
            total.fragments += at < end and before != now and tracks[at + 1] != -1
        if now != -1:
            found, last = found + 1, now
    if end and tracks[end - 1] != tracks[end] and last != -1 and tracks[end] != -1 and not excused[end]:
        total.fragments += 1
    share = found / (len(tracks) - sum(excused))
    total.tracked = mostly + (share > 0.8), partly + (0.2 <= share <= 0.8), lost + (share < 0.2)


def _thresholds(scores: Float64Array, wanted: int) -> tuple[list[float], list[float]]:
    """Return the scores whose recall is nearest to 1/40, 2/40, ..., and those positions."""
    descending = np.sort(scores)[::-1].tolist()
    thresholds: list[float] = []
    recalls: list[float] = []
    position = 0.0
    last = len(descending) - 1
    for at, score in enumerate(descending):
        here = (at + 1) / wanted
        following = (at + 2) / wanted if at < last else here
        if following - position < position - here and at < last:
            continue
        thresholds.append(score)
        recalls.append(position)
        position += 1 / _SAMPLES
    return thresholds[1:], recalls[1:]
