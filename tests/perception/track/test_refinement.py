"""Delayed and global tracks: which frames without a box are reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perception import Detections
from perception.track import Moment, Tracks, track_recording
from perception.track.refinement import frames_to_box

#: Frames in which the car has no box.
_GAP = range(10, 15)
_FRAMES = 25


def _row(label: str) -> list[float]:
    return [20, 0, 0, *((4.2, 1.8, 1.5) if label == "Car" else (1.8, 0.6, 1.7)), 0]


def _track(mode: Any, boxes: Any) -> list[Tracks]:
    """Track the boxes that a function of the frame returns, as pairs of label and score."""
    moments = []
    for frame in range(_FRAMES):
        now = boxes(frame)
        rows = np.array([_row(label) for label, _ in now], np.float32).reshape(-1, 7)
        scores = np.array([score for _, score in now], np.float32)
        found = Detections(rows, scores, [label for label, _ in now])
        moments.append(Moment(found, np.eye(4), frame * 10**8))
    return list(track_recording(moments, mode=mode))


def _frames_with(label: str, tracks: list[Tracks]) -> list[int]:
    return [frame for frame, now in enumerate(tracks) if label in now.labels]


@pytest.mark.parametrize("mode", ["delayed", "global"])
def test_frames_without_a_box_count_against_a_track(mode: Any) -> None:
    def car(score: float) -> Any:
        return lambda frame: [] if frame in _GAP else [("Car", score)]

    everywhere = list(range(_FRAMES))
    assert _frames_with("Car", _track(mode, car(0.95))) == everywhere
    weak = _frames_with("Car", _track(mode, car(0.4)))
    # The frames next to a box are filled, the middle of the gap is not.
    assert set(everywhere) - set(weak) == set(list(_GAP)[2:-2])


@pytest.mark.parametrize("mode", ["delayed", "global"])
@pytest.mark.parametrize(("score", "filled"), [(0.97, False), (0.6, True)])
def test_a_gap_is_not_filled_where_a_likelier_object_is_seen(mode: Any, score: float, filled: bool) -> None:
    def boxes(frame: int) -> list[tuple[str, float]]:
        cyclist = [("Cyclist", score)] if 9 <= frame <= 15 else []
        return cyclist if frame in _GAP else [("Car", 0.9), *cyclist]

    tracks = _track(mode, boxes)
    assert set(_GAP) <= set(_frames_with("Cyclist", tracks))
    assert (set(_GAP) <= set(_frames_with("Car", tracks))) == filled
    assert filled or not set(_GAP) & set(_frames_with("Car", tracks))


def test_the_distance_to_a_box_is_that_of_the_nearer_one() -> None:
    seen = np.array([True, False, False, False, True, True])
    assert frames_to_box(seen).tolist() == [0, 1, 2, 1, 0, 0]
