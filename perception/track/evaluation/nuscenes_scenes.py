"""Labels and tracks of nuScenes' scenes as its tracking benchmark looks at them.

What does not count is left out, tracks get the mean of their scores, and what is missing between two boxes of
an identity is filled in. As in nuscenes-devkit, what is filled in leans to the farther box: its program takes
the share of the one for that of the other.
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
    """Boxes of a scene by frame, those that were filled in behind the others of a frame.

    Attributes:
        frame: (M,) int64 number of the frame in its scene.
        label: (M,) int64 number of the class.
        track_id: (M,) int64.
        centre: (M, 2) float64, metres on the ground.
        score: (M,) float64 mean of the track.
    """

    frame: Rows
    label: Rows
    track_id: Rows
    centre: Float64Array
    score: Float64Array

    def rows(self, which: Rows) -> SceneBoxes:
        """Those of row numbers, in their order."""
        return SceneBoxes(
            self.frame[which], self.label[which], self.track_id[which], self.centre[which], self.score[which]
        )


class TrackingScene(NamedTuple):
    """A scene with all that counts in it, and how many frames it has."""

    labels: SceneBoxes
    results: SceneBoxes
    frames: int


def scenes_of(
    labels: BoxTable, results: BoxTable, *, scene: Rows, time_us: Rows, racks: BoxTable | None
) -> list[TrackingScene]:
    """The scenes of tables; arguments as of :func:`~perception.track.evaluation.nuscenes_measures`."""
    kept = [table.rows(left_out(table, racks, TRACKING_RANGES_M)[0]) for table in (labels, results)]
    found = []
    for number in np.unique(scene).tolist():
        frames = np.flatnonzero(scene == number)
        frames = frames[np.argsort(time_us[frames], kind="stable")]
        if (np.diff(time_us[frames]) == 0).any():
            raise ValueError(f"scene {number} has a time twice; frames of a scene differ in time")
        place = np.full(len(scene), -1)
        place[frames] = np.arange(len(frames))
        truth, told = (_filled(_boxes(table, place), time_us[frames].tolist()) for table in kept)
        found.append(TrackingScene(truth, told, len(frames)))
    return found


def _boxes(table: BoxTable, place: Rows) -> SceneBoxes:
    """The boxes of one scene, whose frames have a place in it."""
    rows = np.flatnonzero(place[table.frame] >= 0)
    rows = rows[np.argsort(place[table.frame[rows]], kind="stable")]
    number = {name: at for at, name in enumerate(CLASSES)}
    label = np.array([number[name] for name in table.label[rows].tolist()], np.int64)
    identity, owner = np.unique(table.track_id[rows], return_inverse=True)
    score = table.score[rows].copy()
    for part in np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner))[:-1]):
        # A mean of each list by itself: scores are compared to the last bit.
        score[part] = np.mean(score[part]) if len(part) else score[part]
    return SceneBoxes(place[table.frame[rows]], label, identity[owner], table.boxes[rows, :2], score)


def _filled(boxes: SceneBoxes, times: list[int]) -> SceneBoxes:
    """With a box in every frame between the first and the last of each identity."""
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
