"""Labels and tracks of nuScenes' scenes, filtered and completed as its tracking benchmark does.

Boxes that do not count are removed, and each track gets its mean score. Missing boxes between two boxes of a
track are interpolated. The weights of the two boxes are swapped, as in nuscenes-devkit, so an interpolated
box lies nearer to the box that is farther in time.
"""

from __future__ import annotations

from bisect import bisect
from typing import NamedTuple

import numpy as np

from perception.evaluate.box_table import BoxTable, Float64Array, Rows
from perception.evaluate.nuscenes.evaluation import left_out
from perception.evaluate.nuscenes.result import TRACKING_RANGES_M

CLASSES = tuple(TRACKING_RANGES_M)


class SceneBoxes(NamedTuple):
    """Boxes of a scene by frame; interpolated boxes follow the others of their frame.

    Attributes:
        frame: (M,) int64 frame number in the scene.
        label: (M,) int64 class number.
        track_id: (M,) int64.
        centre: (M, 2) float64, metres on the ground.
        score: (M,) float64 mean score of the track.
    """

    frame: Rows
    label: Rows
    track_id: Rows
    centre: Float64Array
    score: Float64Array

    def rows(self, which: Rows) -> SceneBoxes:
        """Return the given rows, in their order."""
        return SceneBoxes(
            self.frame[which], self.label[which], self.track_id[which], self.centre[which], self.score[which]
        )


class TrackingScene(NamedTuple):
    """Counting labels and results of a scene, and its number of frames."""

    labels: SceneBoxes
    results: SceneBoxes
    frames: int


def scenes_of(
    labels: BoxTable, results: BoxTable, *, scene: Rows, time_us: Rows, racks: BoxTable | None
) -> list[TrackingScene]:
    """Split tables into scenes; arguments as in :func:`~perception.track.evaluation.nuscenes_measures`."""
    kept = [table.rows(left_out(table, racks, TRACKING_RANGES_M)[0]) for table in (labels, results)]
    found = []
    for number in np.unique(scene).tolist():
        frames = np.flatnonzero(scene == number)
        frames = frames[np.argsort(time_us[frames], kind="stable")]
        if (np.diff(time_us[frames]) == 0).any():
            raise ValueError(f"scene {number}: two frames have the same time; make time_us unique per scene")
        place = np.full(len(scene), -1)
        place[frames] = np.arange(len(frames))
        truth, told = (_filled(_boxes(table, place), time_us[frames].tolist()) for table in kept)
        found.append(TrackingScene(truth, told, len(frames)))
    return found


def _boxes(table: BoxTable, place: Rows) -> SceneBoxes:
    """Return the boxes of one scene, given each frame's place in it (-1 for frames of other scenes)."""
    rows = np.flatnonzero(place[table.frame] >= 0)
    rows = rows[np.argsort(place[table.frame[rows]], kind="stable")]
    number = {name: at for at, name in enumerate(CLASSES)}
    label = np.array([number[name] for name in table.label[rows].tolist()], np.int64)
    identity, owner = np.unique(table.track_id[rows], return_inverse=True)
    score = table.score[rows].copy()
    for part in np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner))[:-1]):
        # One np.mean per track: scores must equal the devkit's to the last bit.
        score[part] = np.mean(score[part]) if len(part) else score[part]
    return SceneBoxes(place[table.frame[rows]], label, identity[owner], table.boxes[rows, :2], score)


def _filled(boxes: SceneBoxes, times: list[int]) -> SceneBoxes:
    """Add an interpolated box in every frame between the first and the last box of each track."""
    frame, label = boxes.frame.tolist(), boxes.label.tolist()
    by_track: dict[int, list[int]] = {}
    for row, identity in enumerate(boxes.track_id.tolist()):
        by_track.setdefault(identity, []).append(row)
    made: list[tuple[int, int, int, Float64Array, float]] = []
    for identity, rows in by_track.items():
        places = [frame[row] for row in rows]
        for at in sorted(set(range(places[0], places[-1])) - set(places)):
            after = bisect(places, at)
            left, right = rows[after - 1], rows[after]
            share = float(times[places[after]] - times[at]) / (
                times[places[after]] - times[places[after - 1]]
            )
            centre = (1.0 - share) * boxes.centre[left] + share * boxes.centre[right]
            score = (1.0 - share) * float(boxes.score[left]) + share * float(boxes.score[right])
            made.append((at, label[right], identity, centre, score))
    if not made:
        return boxes
    extra = SceneBoxes(*(np.array(column) for column in zip(*made, strict=True)))
    every = SceneBoxes(*(np.concatenate(columns) for columns in zip(boxes, extra, strict=True)))
    return every.rows(np.argsort(every.frame, kind="stable"))
