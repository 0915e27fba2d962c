"""A run keeps up: the newest scan wins, a source that broke is opened again, nothing grows or is lost."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perception import Detector, Tracker
from perception.errors import DataError
from perception.io.poses import ScanPose
from perception.live import Arrival, LiveRun, Recorded, Replay, Result
from perception.types import PointCloud

Points = Callable[[int], np.ndarray]
START_NS = 10**18


class Kept:
    """A sink that keeps all, slowly if asked."""

    def __init__(self, wait_s: float = 0.0) -> None:
        self.results: list[Result] = []
        self.closed, self._wait_s = 0, wait_s

    def take(self, result: Result) -> None:
        time.sleep(self._wait_s)
        self.results.append(result)

    def close(self) -> None:
        self.closed += 1


def drive(points: Points, count: int, *, posed: bool = False) -> Callable[[], Iterator[Recorded]]:
    def recorded() -> Iterator[Recorded]:
        for number in range(count):
            pose = np.eye(4)
            pose[0, 3] = 0.1 * number
            cloud = PointCloud(points(number % 8), timestamp_ns=START_NS + number * 10**8)
            yield Recorded(f"{number:06d}", cloud, pose=ScanPose(pose) if posed else None)

    return recorded


class Sent:
    """A source that sends what it is given, one list an opening, each scan when the one before was seen."""

    name, lasting = "sent", True

    def __init__(self, *openings: list[Any]) -> None:
        self._openings = list(openings)
        self.seen = threading.Event()

    def arrivals(self, stop: threading.Event) -> Iterator[Arrival | DataError]:
        for one in self._openings.pop(0) if self._openings else []:
            if isinstance(one, Exception) and not isinstance(one, DataError):
                raise one
            self.seen.clear()
            yield one
            if isinstance(one, Arrival):
                self.seen.wait(10)
        if not self._openings:
            stop.wait(10)


def arrival(points: Points, number: int, *, time_ns: int | None = None, **known: Any) -> Arrival:
    at_ns = START_NS + number * 10**8 if time_ns is None else time_ns
    return Arrival(
        f"{number}", number, PointCloud(points(number), timestamp_ns=at_ns), time.monotonic(), **known
    )


def run_sent(source: Sent, detector: Detector, until: int, **options: Any) -> tuple[LiveRun, Kept]:
    """Run until so many results are known."""
    kept = Kept()

    class Watching(Kept):
        def take(self, result: Result) -> None:
            kept.results.append(result)
            source.seen.set()
            if len(kept.results) == until:
                live.stop()

    live = LiveRun(source, detector, sinks=[Watching()], first_wait_s=0.01, **options)
    live.run()
    return live, kept


def test_tracks_are_those_of_a_tracker(detector: Detector, points: Points) -> None:
    kept, tracker = Kept(), Tracker()
    # As fast as frames are computed: nothing is dropped.
    live = LiveRun(Replay(drive(points, 4, posed=True), name="drive"), detector, sinks=[kept], queue=4)
    figures = live.run()
    assert (figures.arrived, figures.done, figures.dropped, kept.closed) == (4, 4, 0, 1)
    assert [result.arrival.name for result in kept.results] == ["000000", "000001", "000002", "000003"]
    for one, result in zip(drive(points, 4, posed=True)(), kept.results, strict=True):
        assert one.pose is not None
        time_ns = one.cloud.timestamp_ns
        expected = tracker.update(detector(one.cloud), pose=one.pose.map_from_lidar, time_ns=time_ns)
        assert result.tracks.to_dict() | {"source": None} == expected.to_dict() | {"source": None}
        assert 0 < result.latency_s < 10


def test_the_oldest_scans_make_way(detector: Detector, points: Points) -> None:
    said: list[str] = []
    source = Replay(drive(points, 300), name="drive", speed=float("inf"))
    figures = LiveRun(source, detector, say=said.append, queue=2).run()
    assert figures.arrived == 300 == figures.done + figures.dropped
    assert 1 <= figures.done < 300
    assert any("no pose: tracks are in the frame of the sensor" in text for text in said)


def test_a_slow_sink_delays_no_scan(detector: Detector, points: Points) -> None:
    kept = Kept(wait_s=0.1)
    source = Replay(drive(points, 40), name="drive", speed=10)
    figures = LiveRun(source, detector, sinks=[kept], queue=40).run()
    assert figures.done == 40 == figures.unpublished + len(kept.results)
    assert figures.unpublished > 0
    assert kept.closed == 1
    assert kept.results[-1].arrival.name == "000039"


def test_a_source_that_breaks_is_opened_again(detector: Detector, points: Points) -> None:
    said: list[str] = []
    source = Sent(
        [arrival(points, 0), OSError("the cable is out")],
        [DataError("scan 1 is damaged"), arrival(points, 2)],
        [arrival(points, 3)],
    )
    live, kept = run_sent(source, detector, 3, say=said.append)
    assert [result.arrival.name for result in kept.results] == ["0", "2", "3"]
    assert (live.figures.reconnects, live.figures.unreadable) == (2, 1)
    assert "the cable is out; opened again in 0.01 s" in said
    assert "sent: has ended; opened again in 0.01 s" in said
    # The same tracks go on.
    assert {result.restarts for result in kept.results} == {0}


def test_a_replay_that_breaks_ends_the_run_with_what_was_found(detector: Detector, points: Points) -> None:
    def broken() -> Iterator[Recorded]:
        yield from drive(points, 2)()
        raise DataError("drive.mcap: cut off")

    kept = Kept()
    with pytest.raises(DataError, match=r"drive.mcap: cut off"):
        LiveRun(Replay(broken, name="drive"), detector, sinks=[kept], queue=2).run()
    assert len(kept.results) == 2
    assert kept.closed == 1


def test_a_sink_that_fails_ends_the_run(detector: Detector, points: Points) -> None:
    class Full(Kept):
        def take(self, result: Result) -> None:
            raise OSError("no space left")

    full = Full()
    with pytest.raises(OSError, match="no space left"):
        LiveRun(Replay(drive(points, 50), name="drive"), detector, sinks=[full]).run()
    assert full.closed == 1


def test_scans_that_come_late_and_clocks_that_are_put_back(detector: Detector, points: Points) -> None:
    source = Sent([arrival(points, 5), arrival(points, 6), arrival(points, 1, time_ns=START_NS - 10**10)])
    live, kept = run_sent(source, detector, 3)
    assert [result.restarts for result in kept.results] == [0, 0, 1]
    assert live.figures.restarts == 1

    source = Sent([arrival(points, 5), arrival(points, 6)])
    late = arrival(points, 4)
    source._openings[0].insert(1, late)
    source.seen.wait = lambda timeout=None: time.sleep(0.05) or True  # type: ignore[method-assign,assignment]
    live, kept = run_sent(source, detector, 2)
    assert [result.arrival.name for result in kept.results] == ["5", "6"]
    assert live.figures.late == 1


def test_poses_of_somebody_else_and_scans_without(detector: Detector, points: Points) -> None:
    turned = np.diag([1.0, 1.0, -1.0, 1.0])

    def pose_of(one: Arrival) -> ScanPose:
        if one.name == "1":
            raise DataError("poses.txt: 1 poses, none in row 1")
        return ScanPose(turned if one.name == "2" else np.eye(4))

    said: list[str] = []
    source = Sent([arrival(points, number) for number in range(4)])
    live, kept = run_sent(source, detector, 4, pose_of=pose_of, say=said.append)
    assert [result.pose is None for result in kept.results] == [False, True, True, False]
    assert live.figures.without_pose == 2
    assert "poses.txt: 1 poses, none in row 1" in said
    assert any("pose must be map_from_lidar" in text for text in said)


def test_scans_of_nothing_of_nan_and_of_one_point(detector: Detector, points: Points) -> None:
    empty, one = np.zeros((0, 4), np.float32), np.ones((1, 4), np.float32)
    scans = [empty, np.full((5, 4), np.nan, np.float32), one]
    sent = [
        arrival(points, number)._replace(cloud=PointCloud(scan, timestamp_ns=START_NS + number))
        for number, scan in enumerate(scans)
    ]
    live, _ = run_sent(Sent(sent), detector, 3)
    assert live.figures.done == 3


def test_a_rate_passes_scans_over(detector: Detector, points: Points) -> None:
    source = Replay(drive(points, 21), name="drive", speed=4)
    figures = LiveRun(source, detector, queue=21, rate_hz=20).run()
    # 40 scans a second for half a second, of which every second one is taken.
    assert figures.arrived == 21 == figures.passed_over + figures.done
    assert 6 <= figures.done <= 13
    with pytest.raises(ValueError, match="rate_hz must be above 0, got 0"):
        LiveRun(source, detector, rate_hz=0)


def test_it_shows_that_it_is_alive_while_nothing_comes(detector: Detector) -> None:
    pulses: list[float] = []

    def alive() -> None:
        pulses.append(time.monotonic())
        if len(pulses) == 3:
            live.stop()

    live = LiveRun(Sent([]), detector, alive=alive)
    live.run()
    assert len(pulses) >= 3


def test_replays_keep_the_pace_of_their_times(points: Points, listening: Any) -> None:
    with listening(Replay(drive(points, 3), name="drive", speed=2)) as heard:
        came = heard.until(3)
        assert [one.cloud.timestamp_ns for one in came] == [START_NS + k * 10**8 for k in range(3)]
        assert came[2].arrived_s - came[0].arrived_s == pytest.approx(0.1, abs=0.08)

    def timeless() -> Iterator[Recorded]:
        # A clock that is put back, or scans without times, are ten a second.
        for one in drive(points, 3)():
            yield one._replace(cloud=replace(one.cloud, timestamp_ns=None))

    with listening(Replay(timeless, name="drive", speed=2)) as heard:
        times = [one.cloud.timestamp_ns for one in heard.until(3)]
        assert [times[1] - times[0], times[2] - times[1]] == [10**8, 10**8]
    with pytest.raises(ValueError, match="speed must be above 0"):
        Replay(timeless, name="drive", speed=0)


def resident_bytes() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def held_by(live: LiveRun) -> dict[str, int]:
    """Entries of what a run holds."""
    figures, tracker = live.figures, live._tracker
    return {
        "scans": len(live._scans), "results": len(live._results), "identities": len(live._known),
        "recent": len(figures._recent), "tracks": len(tracker.state), "waiting": len(tracker.waiting.state),
    }  # fmt: skip


def grow_test(detector: Detector, points: Points, count: int, *, every: int, speed: float) -> LiveRun:
    """Run many scans; half-way and at the end the same is held, to a few megabytes."""
    seen: list[tuple[int, dict[str, int]]] = []
    pulses = 0

    def alive() -> None:
        nonlocal pulses
        pulses += 1
        if pulses % every == 0:
            seen.append((resident_bytes(), held_by(live)))

    source = Replay(drive(points, count, posed=True), name="drive", speed=speed)
    live = LiveRun(source, detector, sinks=[], queue=2, alive=alive)
    gc.collect()
    figures = live.run()
    assert figures.arrived == count == figures.done + figures.dropped + figures.late
    assert len(seen) >= 4
    early, late = seen[len(seen) // 2], seen[-1]
    assert late[0] - early[0] < 8 * 2**20
    for name, length in late[1].items():
        # Bounds of the containers themselves, whatever came before.
        assert length <= {"scans": 2, "results": 16, "recent": 512}.get(name, 600), name
    return live


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_nothing_grows(detector: Detector, points: Points) -> None:
    grow_test(detector, points, 2000, every=2, speed=200)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_nothing_grows_in_as_many_scans_as_an_hour_has(detector: Detector, points: Points) -> None:
    figures = grow_test(detector, points, 36_000, every=20, speed=100).figures
    assert figures.done > 2000
