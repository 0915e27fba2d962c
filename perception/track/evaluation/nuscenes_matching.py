"""Matching of labels and tracks per frame: CLEAR MOT as nuScenes counts it.

A label keeps its previous track while that is near; all others are assigned by distance. Source: Bernardin
and Stiefelhagen, "Evaluating Multiple Object Tracking Performance" (2008), as implemented by motmetrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from perception.evaluate.box_table import Float64Array, Rows
from perception.track.evaluation.nuscenes_scenes import TrackingScene

#: Greatest ground distance of a match.
MATCH_M = 2.0
#: Seconds between frames.
_FRAME_S = 0.5
_MOSTLY, _HARDLY = 0.8, 0.2


@dataclass(frozen=True, eq=False)
class _MatchFrame:
    """Ids of a frame's labels and tracks, track scores, and distances (NaN beyond the match distance)."""

    labels: list[int]
    tracks: Rows
    scores: Float64Array
    distance: Float64Array


@dataclass
class _History:
    """Frame numbers of a labelled object, and whether it was matched in each."""

    frame: list[int] = field(default_factory=list)
    found: list[bool] = field(default_factory=list)


@dataclass
class Counts:
    """Sums over all scenes at one least score.

    Attributes:
        frames: frames with a label or a track.
        labels, matches, switches, misses, false_positives: boxes; a switch is not a match.
        distance_m: sum over matches and switches.
        mostly_tracked, mostly_lost: labelled objects.
        fragments: breaks of their tracks.
        found: labelled objects that were matched at all.
        first_s, gap_s: sums over found objects: time until the first match, longest time without one.
        scores: of the matches.
    """

    frames: int = 0
    labels: int = 0
    matches: int = 0
    switches: int = 0
    misses: int = 0
    false_positives: int = 0
    distance_m: float = 0.0
    mostly_tracked: int = 0
    mostly_lost: int = 0
    fragments: int = 0
    found: int = 0
    first_s: float = 0.0
    gap_s: float = 0.0
    scores: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """Return the metrics by name; NaN where undefined."""
        hits = self.matches + self.switches
        errors = self.misses + self.switches + self.false_positives
        recall = self.matches / self.labels
        reached = recall * self.labels
        motar = 1 - (errors - (1 - recall) * self.labels) / reached if reached else np.nan
        return {
            "recall": hits / self.labels,
            "motar": float(np.maximum(0, motar)),
            "mota": max(0.0, 1.0 - errors / self.labels),
            "motp": self.distance_m / hits if hits else np.nan,
            "false_alarms": self.false_positives / self.frames * 100,
            "labels": self.labels,
            "true_positives": self.matches,
            "false_positives": self.false_positives,
            "false_negatives": self.misses,
            "id_switches": self.switches,
            "fragments": self.fragments,
            "mostly_tracked": self.mostly_tracked,
            "mostly_lost": self.mostly_lost,
            "first_found_s": self.first_s / self.found if self.found else np.nan,
            "longest_gap_s": self.gap_s / self.found if self.found else np.nan,
        }


class ClassScenes:
    """Labels and tracks of one class in all scenes, independent of the least score."""

    def __init__(self, scenes: Sequence[TrackingScene], label: int) -> None:
        self._scenes = [_frames(scene, label) for scene in scenes]
        self.boxes = sum(len(frame.labels) for frames in self._scenes for frame in frames)
        self.things = sum(
            len({identity for frame in frames for identity in frame.labels}) for frames in self._scenes
        )

    def count(self, least_score: float) -> Counts:
        """Count all frames, using only tracks of at least this score."""
        total = Counts()
        for frames in self._scenes:
            _count_scene(frames, least_score, total)
        return total


def _frames(scene: TrackingScene, label: int) -> list[_MatchFrame]:
    labels, results = (boxes.rows(np.flatnonzero(boxes.label == label)) for boxes in scene[:2])
    edges = [
        np.searchsorted(boxes.frame, np.arange(scene.frames + 1)).tolist() for boxes in (labels, results)
    ]
    found = []
    for at in range(scene.frames):
        ours, theirs = (slice(edge[at], edge[at + 1]) for edge in edges)
        distance = _distances(labels.centre[ours], results.centre[theirs])
        found.append(
            _MatchFrame(
                labels.track_id[ours].tolist(),
                results.track_id[theirs],
                results.score[theirs],
                np.where(distance < MATCH_M, distance, np.nan),
            )
        )
    return found


def _distances(labels: Float64Array, tracks: Float64Array) -> Float64Array:
    """Return (N, M) distances by the same expansion of squares that nuscenes-devkit uses.

    Far from the map's origin the expansion is a few micrometres off, as large as the tolerance of the
    figures.
    """
    squared = -2 * (labels @ tracks.T)
    squared += np.einsum("ij,ij->i", labels, labels)[:, None]
    squared += np.einsum("ij,ij->i", tracks, tracks)[None, :]
    return np.asarray(np.sqrt(np.maximum(squared, 0)))


def _count_scene(frames: Sequence[_MatchFrame], least_score: float, total: Counts) -> None:
    partner: dict[int, int] = {}
    histories: dict[int, _History] = {}
    number = 0
    for frame in frames:
        kept = frame.scores >= least_score
        tracks = frame.tracks[kept].tolist()
        if not frame.labels and not tracks:
            continue
        matched = _matches(frame.labels, tracks, frame.distance[:, kept], partner)
        scores = frame.scores[kept]
        switches = 0
        for row, column in matched.items():
            identity, track = frame.labels[row], tracks[column]
            if partner.get(identity, track) != track:
                switches += 1
            else:
                total.scores.append(float(scores[column]))
            partner[identity] = track
            total.distance_m += float(frame.distance[:, kept][row, column])
        for row, identity in enumerate(frame.labels):
            history = histories.setdefault(identity, _History())
            history.frame.append(number)
            history.found.append(row in matched)
        total.frames += 1
        total.labels += len(frame.labels)
        total.switches += switches
        total.matches += len(matched) - switches
        total.misses += len(frame.labels) - len(matched)
        total.false_positives += len(tracks) - len(matched)
        number += 1
    for history in histories.values():
        _count_history(history, total)


def _matches(
    labels: list[int], tracks: list[int], distance: Float64Array, partner: dict[int, int]
) -> dict[int, int]:
    """Return label row to track column for every matched label."""
    near = ~np.isnan(distance)
    if not near.any():
        return {}
    matched: dict[int, int] = {}
    column_of = {track: column for column, track in enumerate(tracks)}
    taken: set[int] = set()
    for row, identity in enumerate(labels):
        column = column_of.get(partner.get(identity, -1))
        if column is not None and column not in taken and near[row, column]:
            matched[row] = column
            taken.add(column)
    near[list(matched)] = False
    near[:, list(taken)] = False
    if near.any():
        cost = np.where(near, distance, 0.0)
        cost[~near] = 2 * min(cost.shape) * (cost.max() + 1) + 1
        for row, column in zip(*(side.tolist() for side in linear_sum_assignment(cost)), strict=True):
            if near[row, column]:
                matched[row] = column
    return matched


def _count_history(history: _History, total: Counts) -> None:
    """Add the coverage, delay, gaps and fragments of one labelled object."""
    found: Any = np.array(history.found)
    share = found.sum() / len(found)
    total.mostly_tracked += int(share >= _MOSTLY)
    total.mostly_lost += int(share < _HARDLY)
    if not found.any():
        return
    frame = np.array(history.frame)
    seen = np.flatnonzero(found)
    span = found[seen[0] : seen[-1] + 1]
    total.fragments += int((span[:-1] & ~span[1:]).sum())
    total.found += 1
    total.first_s += _FRAME_S * float(frame[seen[0]] - frame[0])
    # Gaps before the first match, between two matches, and after the last.
    ends = np.concatenate([[frame[0] - 1], frame[seen], [frame[-1] + 1]])
    total.gap_s += _FRAME_S * float(np.diff(ends).max() - 1)
