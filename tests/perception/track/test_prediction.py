"""Tracks at a later time: moved, less certain, and gone when nobody can know."""

from __future__ import annotations

import numpy as np
import pytest

from perception import Detections, Tracker
from perception.track.persistence import load_tracker, save_tracker

STEP_NS = 10**8
CAR = (4.2, 1.8, 1.5)


def _at(x: float) -> np.ndarray:
    pose = np.eye(4)
    pose[0, 3] = x
    return pose


def _tracked(frames: int = 30, *, posed: bool = True) -> Tracker:
    """A sensor that drives at 6 m/s; a parked car at x = 60 m; one at 10 m/s from x = 10 m."""
    tracker = Tracker()
    for frame in range(frames):
        now_s = frame * 0.1
        own = 6 * now_s
        places = [(60 - own, 4.0), (10 + 10 * now_s - own, -4.0)]
        rows = np.array([[x, y, 0, *CAR, 0] for x, y in places], np.float32)
        found = Detections(rows, np.full(2, 0.9, np.float32), ["Car", "Car"])
        tracker.update(found, pose=_at(own) if posed else None, time_ns=frame * STEP_NS)
    return tracker


def test_objects_and_the_sensor_move_on() -> None:
    tracker = _tracked()
    ahead_s = 0.25
    tracks = tracker.predict(29 * STEP_NS + round(ahead_s * 1e9))
    now_s = 2.9 + ahead_s
    rows = {int(number): row for row, number in enumerate(tracks.track_id)}
    assert tracks.pose[0, 3] == pytest.approx(6 * now_s, abs=1e-6)
    assert tracks.map_boxes[rows[1], :2] == pytest.approx([60, 4], abs=0.05)
    assert tracks.map_boxes[rows[2], :2] == pytest.approx([10 + 10 * now_s, -4], abs=0.1)
    assert tracks.boxes[rows[2], 0] == pytest.approx(10 + 4 * now_s, abs=0.1)
    assert tracks.timestamp_ns == 29 * STEP_NS + 250_000_000
    assert tracks.missed_s == pytest.approx([ahead_s] * 2)


@pytest.mark.parametrize(("speed_m_s", "moves"), [(0.5, False), (1.5, True)])
def test_with_poses_only_moving_objects_move(speed_m_s: float, moves: bool) -> None:
    for posed in (True, False):
        tracker = Tracker()
        for frame in range(30):
            row = np.array([[20 + speed_m_s * frame * 0.1, 4.0, 0, *CAR, 0]], np.float32)
            found = Detections(row, np.full(1, 0.9, np.float32), ["Car"])
            last = tracker.update(found, pose=_at(0.0) if posed else None, time_ns=frame * STEP_NS)
        later = tracker.predict(34 * STEP_NS)
        step_m = float(later.boxes[0, 0] - last.boxes[0, 0])
        assert step_m == pytest.approx(0.5 * speed_m_s if moves or not posed else 0.0, abs=0.02)
        assert later.velocity == pytest.approx(last.velocity)


def test_a_given_pose_replaces_the_expected_one() -> None:
    tracker = _tracked()
    expected = tracker.predict(31 * STEP_NS)
    stopped = tracker.predict(31 * STEP_NS, pose=_at(6 * 2.9))
    assert stopped.map_boxes == pytest.approx(expected.map_boxes, abs=1e-4)
    assert stopped.boxes[:, 0] == pytest.approx(expected.boxes[:, 0] + 1.2, abs=1e-3)


def test_without_poses_boxes_move_relative_to_the_sensor() -> None:
    tracker = _tracked(posed=False)
    tracks = tracker.predict(31 * STEP_NS)
    assert tracks.pose.tolist() == np.eye(4).tolist()
    rows = {int(number): row for row, number in enumerate(tracks.track_id)}
    assert tracks.boxes[rows[1], 0] == pytest.approx(60 - 6 * 3.1, abs=0.1)
    with pytest.raises(ValueError, match="no poses"):
        tracker.predict(31 * STEP_NS, pose=np.eye(4))


def test_prediction_leaves_the_tracker_unchanged_and_outlives_it() -> None:
    tracker = _tracked()
    predictor = tracker.predictor()
    before = predictor.predict(30 * STEP_NS).boxes
    assert np.array_equal(predictor.predict(29 * STEP_NS).boxes, predictor.tracks.boxes)
    numbers = tracker.state.numbers.copy()
    tracker.predict(35 * STEP_NS)
    assert np.array_equal(tracker.state.numbers, numbers)
    empty = Detections(np.zeros((0, 7), np.float32), np.zeros(0, np.float32), [])
    tracker.update(empty, pose=_at(40.0), time_ns=33 * STEP_NS)
    assert np.array_equal(predictor.predict(30 * STEP_NS).boxes, before)


def test_uncertainty_grows_until_the_horizon_and_ended_tracks_are_reported() -> None:
    tracker = _tracked()
    radii = [float(tracker.predict(29 * STEP_NS + ahead * STEP_NS).radius_m().max()) for ahead in range(11)]
    assert (np.diff(radii) > 0).all()
    gone = tracker.predict(29 * STEP_NS + 11 * STEP_NS)
    assert len(gone) == 0
    assert "2 tracks are not predicted" in gone.warnings[-1]


def test_the_radius_holds_the_stated_share_of_a_gaussian() -> None:
    tracks = _tracked().predict(30 * STEP_NS)
    sigma_m = np.sqrt(tracks.covariance[0, 0, 0])
    offsets = np.random.default_rng(0).normal(0, sigma_m, (20_000, 2))
    for share in (0.5, 0.9):
        inside = np.hypot(*offsets.T) <= tracks.radius_m(share)[0]
        assert inside.mean() == pytest.approx(share, abs=0.01)
    with pytest.raises(ValueError, match="between 0 and 1"):
        tracks.radius_m(1.0)


def test_times_before_the_frame_and_missing_frames_are_refused(tmp_path: object) -> None:
    tracker = _tracked(3)
    with pytest.raises(ValueError, match="before the last frame"):
        tracker.predict(2 * STEP_NS - 1)
    with pytest.raises(ValueError, match="Call update first"):
        Tracker().predict(0)
    save_tracker(tracker, f"{tmp_path}/tracker.npz")
    with pytest.raises(ValueError, match="Call update first"):
        load_tracker(f"{tmp_path}/tracker.npz").predict(2 * STEP_NS)
