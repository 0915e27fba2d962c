"""The tracker on things whose ways are known."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception import Detections, Tracker
from perception.errors import ConfigError, DataError
from perception.track import ClassConfig, Moment, TrackerConfig, Tracks, track_recording
from perception.track.filter import correct_velocity
from perception.track.persistence import load_tracker, save_tracker
from perception.track.recording import MODES
from perception.track.state import CENTRE, NUMBERS, SPREAD, VELOCITY

CAR = (4.2, 1.8, 1.5)
#: Reports every track from its first box on.
REPORTING = TrackerConfig(classes={"Car": ClassConfig(tell_from=-20.0)})


def found(places: Any, score: float = 0.9, label: str = "Car", vectors: Any = None) -> Detections:
    """Boxes at (M, 2 or 3) places: x, y and heading."""
    rows = np.zeros((len(places), 7), np.float32)
    for row, place in zip(rows, places, strict=True):
        row[:2], row[3:6], row[6] = place[:2], CAR, place[2] if len(place) > 2 else 0.0
    return Detections(rows, np.full(len(rows), score, np.float32), [label] * len(rows), embeddings=vectors)


def at(x: float, y: float, yaw_rad: float = 0.0) -> np.ndarray:
    pose = np.eye(4)
    pose[:2, :2] = [[np.cos(yaw_rad), -np.sin(yaw_rad)], [np.sin(yaw_rad), np.cos(yaw_rad)]]
    pose[:2, 3] = x, y
    return pose


def seen_from(pose: np.ndarray, places: Any) -> list[tuple[float, float]]:
    back = np.linalg.inv(pose)
    return [tuple((back @ [x, y, 0, 1])[:2]) for x, y in places]


def drive(frames: int, step_s: float = 0.1) -> list[Moment]:
    """A sensor that drives and turns; a car that stands, one that drives at 8 m/s, one that comes late."""
    moments = []
    for frame in range(frames):
        now = frame * step_s
        pose = at(6 * now, np.sin(now), 0.3 * now)
        places = [(30.0, 5.0), (15.0 + 8 * now, -4.0)] + ([(40.0, -9.0)] if frame > 10 else [])
        moments.append(Moment(found(seen_from(pose, places)), pose, round(now * 1e9)))
    return moments


def same(a: Tracks, b: Tracks) -> bool:
    return all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for name in ("track_id", "boxes", "velocity", "scores", "covariance", "labels", "row")
    )


@pytest.mark.parametrize("mode", MODES)
def test_velocity_is_over_the_ground(mode: Any) -> None:
    frames = list(track_recording(drive(40), mode=mode))
    assert len(frames) == 40
    last = frames[-1]
    assert last.track_id.tolist() == sorted({1, 2, 3}, key=last.track_id.tolist().index)
    by_id = {int(track): row for row, track in enumerate(last.track_id)}
    assert last.velocity[by_id[1]] == pytest.approx([0, 0, 0], abs=0.05)
    assert last.velocity[by_id[2]] == pytest.approx([8, 0, 0], abs=0.1)
    assert last.map_boxes[by_id[1], :2] == pytest.approx([30, 5], abs=0.02)
    assert [bool(last.moving[by_id[number]]) for number in (1, 2, 3)] == [False, True, False]
    assert (last.row >= 0).all()
    assert last.missed_s.max() == 0


def test_without_poses_velocity_is_relative_to_the_sensor() -> None:
    tracker = Tracker()
    for frame in range(30):
        tracks = tracker.update(found([(40 - frame, 3.0)]))
    assert tracks.velocity[0] == pytest.approx([-10, 0, 0], abs=0.1)
    assert tracks.timestamp_ns is None


def test_a_weak_box_keeps_a_track_and_founds_none() -> None:
    config = TrackerConfig(other=ClassConfig(high_score=0.0), classes={})
    tracker = Tracker(config)
    assert len(tracker.update(found([(20, 0)], 0.3))) == 0
    first = tracker.update(found([(20, 0)], 0.9))
    assert tracker.update(found([(20.1, 0)], 0.3)).track_id.tolist() == first.track_id.tolist() == [1]


def test_classes_do_not_mix() -> None:
    tracker = Tracker()
    first = tracker.update(found([(20, 0)]))
    second = tracker.update(found([(20, 0)], label="Tram"))
    assert first.track_id[0] not in second.track_id[[label == "Tram" for label in second.labels]]


def test_two_that_cross_keep_their_names() -> None:
    tracker, ids = Tracker(), []
    for frame in range(40):
        way = -10 + 0.5 * frame
        tracks = tracker.update(found([(20 + way, 1.2), (20 - way, -1.2)]), pose=np.eye(4))
        ids.append(
            {int(track): float(y) for track, y in zip(tracks.track_id, tracks.boxes[:, 1], strict=True)}
        )
    assert all(places.keys() == {1, 2} and places[1] > 0 > places[2] for places in ids)


def test_a_row_is_not_pushed_on_by_one() -> None:
    """Where one of a row is hidden and another comes into view, as many pairs as can be would shift it."""
    for alone, kept in ((ClassConfig().alone_cost, [2, 3]), (100.0, [1, 2])):
        tracker = Tracker(TrackerConfig(classes={"Car": ClassConfig(alone_cost=alone)}))
        for _ in range(5):
            tracker.update(found([(10, 0), (10, 2.6), (10, 5.2)]), pose=np.eye(4))
        tracks = tracker.update(found([(10, 2.6), (10, 5.2), (10, 7.8)]), pose=np.eye(4))
        seen = tracks[tracks.row >= 0]
        assert [int(seen.track_id[list(seen.row).index(row)]) for row in (0, 1)] == kept


def test_a_row_of_parked_cars_does_not_move_up() -> None:
    """The first of the row is hidden for once, and one more comes into view at its end."""
    tracker = Tracker()
    row = [(20.0, 2.4 * place, 0.0) for place in range(8)]
    known = {}
    for frame in range(4):
        tracks = tracker.update(found(row[:7]), pose=np.eye(4), time_ns=frame * 500_000_000)
        known = dict(zip(tracks.track_id.tolist(), tracks.boxes[:, 1].round(1).tolist(), strict=True))
    later = tracker.update(found(row[1:]), pose=np.eye(4), time_ns=2_000_000_000)
    for key, y in zip(later.track_id.tolist(), later.boxes[:, 1].tolist(), strict=True):
        assert y == pytest.approx(known.get(key, 16.8), abs=0.1)
    assert later.track_id[later.boxes[:, 1] > 16].tolist() == [8]


@pytest.mark.parametrize("step_m", [1.0, 2.0, 2.7])
def test_one_that_comes_towards_us_is_one_from_the_start(step_m: float) -> None:
    """Without poses a parked car moves by what we drive, and a track that was seen once has no speed."""
    tracker, ids = Tracker(), []
    for frame in range(10):
        tracks = tracker.update(found([(40 - step_m * frame, 3.0)]))
        ids += tracks.track_id.tolist()
    assert ids == [1] * 10


def test_between_slow_frames_speeds_change() -> None:
    """At 2 Hz a car that brakes is farther from where it was expected than pairs may be at 10 Hz."""
    at_m = [0.0, 3.5, 7.0, 10.5, 14.0, 14.3]
    tracker, ids = Tracker(), []
    for frame, x in enumerate(at_m):
        tracks = tracker.update(found([(x, 3.0)]), pose=np.eye(4), time_ns=frame * 500_000_000)
        ids += tracks[tracks.row >= 0].track_id.tolist()
    assert ids == [1] * 6


def test_hidden_for_a_moment_and_longer() -> None:
    tracker = Tracker()
    wide = [(10, 30), (10, -30)]
    for frame in range(10):
        tracker.update(found([(20 + frame, 0), *wide]), pose=np.eye(4))
    hidden = tracker.update(found(wide), pose=np.eye(4))
    unseen = hidden[hidden.row < 0]
    assert unseen.boxes[0, 0] == pytest.approx(30, abs=0.1)
    assert unseen.missed_s[0] == pytest.approx(0.1)
    for _ in range(5):
        assert len(tracker.update(found(wide), pose=np.eye(4))) <= 3
    assert 1 in tracker.update(found([(36, 0), *wide]), pose=np.eye(4)).track_id


def test_a_weak_last_box_does_not_hide_what_is_unseen_next() -> None:
    wide = [(10, 30), (10, -30)]
    tracker = Tracker()
    for frame in range(10):
        tracker.update(found([(20 + frame, 0), *wide]), pose=np.eye(4))
    weak = found([(30, 0), *wide])
    weak.scores[0] = 0.1
    tracks = tracker.update(weak, pose=np.eye(4))
    mine = int(np.flatnonzero(tracks.track_id == 1)[0])
    assert tracks.scores[mine] == pytest.approx(0.1)
    tracks = tracker.update(found(wide), pose=np.eye(4))
    mine = int(np.flatnonzero(tracks.track_id == 1)[0])
    assert tracks.row[mine] == -1
    assert tracks.scores[mine] == pytest.approx(1 / (1 + np.exp(-np.log(9) * 9 / 11)))


@pytest.mark.parametrize("mode", ["delayed", "global"])
def test_a_recording_tells_a_thing_where_it_is_believed_in(mode: Any) -> None:
    moments = [Moment(found([(20 + frame, 0)], 0.9 if frame < 30 else 0.02)) for frame in range(60)]
    frames = list(track_recording(moments, mode=mode))
    assert [len(tracks) for tracks in frames[:25]] == [1] * 25
    assert [len(tracks) for tracks in frames[45:]] == [0] * 15
    assert frames[10].scores[0] == pytest.approx(0.9)


@pytest.mark.parametrize("mode", ["delayed", "global"])
def test_sizes_are_those_of_the_boxes_around(mode: Any) -> None:
    moments = [Moment(found([(20, 0)])) for _ in range(80)]
    for moment in moments[40:]:
        moment.detections.boxes[:, 3] = 5.0
    frames = list(track_recording(moments, mode=mode))
    assert frames[20].boxes[0, 3] == pytest.approx(4.2)
    assert frames[70].boxes[0, 3] == pytest.approx(5.0)


def test_front_and_back_are_voted_on() -> None:
    tracker = Tracker()
    for frame in range(12):
        tracks = tracker.update(found([(20, 0, np.pi if frame == 6 else 0.05)]), pose=np.eye(4))
        assert abs(tracks.boxes[0, 6]) < 0.2


def test_a_vector_brings_a_thing_back() -> None:
    random = np.random.default_rng(1)
    vectors = random.normal(size=(2, 128)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    tracker = Tracker()
    for frame in range(5):
        first = tracker.update(found([(20, 0)], vectors=vectors[:1]), pose=np.eye(4), time_ns=frame * 10**8)
    for frame in range(5, 100):
        tracker.update(Detections.empty(), pose=np.eye(4), time_ns=frame * 10**8)
    other = tracker.update(found([(20, 0)], vectors=vectors[1:]), pose=np.eye(4), time_ns=10 * 10**9)
    assert other.track_id[0] != first.track_id[0]
    back = tracker.update(found([(24, 6)], vectors=vectors[:1]), pose=np.eye(4), time_ns=10 * 10**9 + 10**8)
    assert first.track_id[0] in back.track_id
    assert back.embeddings is not None


@pytest.mark.parametrize("mode", MODES)
def test_the_same_again_to_the_bit(mode: Any) -> None:
    for one, two in zip(
        track_recording(drive(25), mode=mode), track_recording(drive(25), mode=mode), strict=True
    ):
        assert same(one, two)


def test_saved_and_resumed_to_the_bit(tmp_path: Path) -> None:
    moments = drive(30)
    straight, broken = Tracker(), Tracker()
    for number, moment in enumerate(moments):
        if number in (0, 13):
            save_tracker(broken, tmp_path / "tracker.npz")
            broken = load_tracker(tmp_path / "tracker.npz")
        expected = straight.update(moment.detections, pose=moment.pose, time_ns=moment.time_ns)
        assert same(broken.update(moment.detections, pose=moment.pose, time_ns=moment.time_ns), expected)


def test_no_tracker_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"no")
    for path in (tmp_path / "x.npz", tmp_path / "missing.npz"):
        with pytest.raises(DataError, match=path.name):
            load_tracker(path)


def test_time() -> None:
    tracker = Tracker()
    tracker.update(found([(20, 0)]), time_ns=10**9)
    again = tracker.update(found([(20.05, 0)]), time_ns=10**9)
    assert again.track_id.tolist() == [1]
    with pytest.raises(ValueError, match=r"0\.500 s before"):
        tracker.update(found([(20, 0)]), time_ns=5 * 10**8)
    assert tracker.update(found([(20.1, 0)]), time_ns=11 * 10**8).track_id.tolist() == [1]
    assert tracker.update(found([(20.1, 0)]), time_ns=10**12).track_id.tolist() == [2]


@pytest.mark.parametrize(("step_s", "kept"), [(0.5, True), (0.1, False)])
def test_a_thing_may_be_missed_in_three_frames_however_slow(
    step_s: float, kept: bool, tmp_path: Path
) -> None:
    tracker = Tracker()
    for frame in range(4):
        tracker.update(found([(20, 0)]), pose=np.eye(4), time_ns=round(frame * step_s * 1e9))
    save_tracker(tracker, tmp_path / "tracker.npz")
    tracker = load_tracker(tmp_path / "tracker.npz")
    last_s = 3 * step_s
    tracker.update(found([]), pose=np.eye(4), time_ns=round((last_s + step_s) * 1e9))
    tracks = tracker.update(found([(20, 0)]), pose=np.eye(4), time_ns=round((last_s + 1.5) * 1e9))
    assert tracks.track_id.tolist() == [1 if kept else 2]


def test_poses_that_are_missing_jump_or_begin_late() -> None:
    tracker, car = Tracker(), (100.0, 3.0)
    warnings = []
    for frame in range(40):
        pose = at(0.8 * frame, 0)
        places = seen_from(pose, [car])
        if frame >= 25:
            pose[0, 3] += 5000
        tracks = tracker.update(found(places), pose=None if frame < 3 or frame in (10, 11) else pose)
        warnings += [(frame, warning) for warning in tracks.warnings]
        assert tracks.track_id.tolist() == [1]
    assert [frame for frame, _ in warnings] == [3, 10, 11, 25]
    assert tracks.velocity[0] == pytest.approx([0, 0, 0], abs=0.2)
    assert tracks.map_boxes[0, 0] == pytest.approx(5100, abs=0.1)


@pytest.mark.parametrize(
    "pose", [np.eye(3), np.full((4, 4), np.nan), np.diag([1.0, 1, -1, 1]), 2 * np.eye(4)]
)
def test_what_is_no_pose(pose: np.ndarray) -> None:
    with pytest.raises(ValueError, match="pose must"):
        Tracker().update(found([(20, 0)]), pose=pose)


def test_nothing_and_what_is_not_finite() -> None:
    tracker = Tracker()
    assert len(tracker.update(Detections.empty())) == 0
    broken = found([(20, 0), (30, 0)])
    broken.boxes[0, 2] = np.nan
    tracks = tracker.update(broken)
    assert len(tracks) == 1
    assert "1 boxes that are not finite" in tracks.warnings[0]
    for mode in MODES:
        assert [len(one) for one in track_recording([Moment(Detections.empty())] * 3, mode=mode)] == [0, 0, 0]
        assert list(track_recording([], mode=mode)) == []


def test_ten_thousand_boxes_are_not_all_compared_with_all() -> None:
    random = np.random.default_rng(0)
    places = random.uniform(-150, 150, (10_000, 2))
    tracker = Tracker()
    tracker.update(found(places), pose=np.eye(4))
    tracemalloc.start()
    try:
        tracks = tracker.update(found(places + 0.05), pose=np.eye(4))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A number for each pair would take 400 MB, even in single precision.
    assert peak_bytes < 200e6
    assert len(np.unique(tracks.track_id)) == len(tracks) > 9_900
    assert (tracks.hits == 2).mean() > 0.95


def test_rows_are_chosen_with_all_that_belongs_to_them() -> None:
    for moment in drive(5):
        tracks = next(iter(track_recording([moment])))
    moving = tracks[::-1]
    assert moving.track_id.tolist() == tracks.track_id.tolist()[::-1]
    assert tracks[[]].velocity.shape == (0, 3)
    assert tracks.filter(labels=["Tram"]).covariance.shape == (0, 6, 6)
    record = tracks.to_dict()
    assert record["track_id"] == tracks.track_id.tolist()
    assert len(record["velocity"]) == len(record["boxes"]) == 2


def test_what_no_config_can_be() -> None:
    for name, value in (("gate_m", 0.0), ("forget_s", -1.0), ("bias", float("nan")), ("coast_s", "1")):
        with pytest.raises(ConfigError, match=name):
            ClassConfig(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="frame_s"):
        TrackerConfig(frame_s=0)


def with_velocities(detections: Detections, velocities: Any) -> Detections:
    return replace(detections, velocities=np.array(velocities, np.float32).reshape(-1, 2))


def test_estimated_velocities_start_and_update_tracks() -> None:
    """Two cars seen once from a sensor that looks along y of the map; one velocity is unknown."""
    pose, places = at(0, 0, np.pi / 2), [(10.0, 0.0), (20.0, 5.0)]
    tracker = Tracker(REPORTING)
    first = tracker.update(
        with_velocities(found(places), [(8.0, 0.0), (np.nan, np.nan)]), pose=pose, time_ns=0
    )
    np.testing.assert_allclose(first.velocity, [[0, 8, 0], [0, 0, 0]], atol=1e-6)
    assert first.covariance[0, 3, 3] == pytest.approx(1.0)
    assert first.covariance[1, 3, 3] == pytest.approx(100.0)
    assert first.moving.tolist() == [True, False]
    # The next box of the first is found where it drove to, and its speed follows further estimates.
    moved = [(10.8, 0.0), (20.0, 5.0)]
    second = tracker.update(with_velocities(found(moved), [(9.0, 0.0), (0.0, 1.0)]), pose=pose, time_ns=10**8)
    assert second.track_id.tolist() == first.track_id.tolist()
    assert 8 < second.velocity[0, 1] < 9
    assert -1.0 < second.velocity[1, 0] < -0.8
    assert second.covariance[1, 3, 3] < 1.0


def test_estimates_over_the_ground_need_poses() -> None:
    tracker = Tracker(REPORTING)
    tracks = tracker.update(with_velocities(found([(10.0, 0.0)]), [(8.0, 0.0)]), time_ns=0)
    assert not tracks.velocity.any()
    assert tracks.velocities is None


def test_an_update_with_a_velocity_is_a_kalman_filter() -> None:
    """The covariance of position and speed, and the state, as the matrix equations give them."""
    numbers = np.zeros((2, NUMBERS))
    numbers[:, VELOCITY] = [[1, 2, 0]] * 2
    numbers[:, SPREAD] = [0.5, 0.3, 2.0]
    measured = np.array([[3.0, 1.0, 0.0], [np.nan, 0.0, 0.0]])
    corrected = correct_velocity(numbers, measured, np.array([0.25, 0.25]))
    before, row = np.array([[0.5, 0.3], [0.3, 2.0]]), np.array([[0.0, 1.0]])
    gain = before @ row.T / (row @ before @ row.T + 0.25)
    after = before - gain @ row @ before
    np.testing.assert_allclose(corrected[0, SPREAD], [after[0, 0], after[0, 1], after[1, 1]])
    np.testing.assert_allclose(corrected[0, CENTRE], gain[0] * [2, -1, 0])
    np.testing.assert_allclose(corrected[0, VELOCITY], [1, 2, 0] + gain[1] * [2, -1, 0])
    assert np.array_equal(corrected[1], numbers[1])
