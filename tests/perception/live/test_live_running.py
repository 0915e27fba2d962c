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
#: Seconds after which a test that hangs ends.
GUARD_S = 300.0


class Kept:
    """A sink that keeps all, as soon as it may."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.closed = 0
        self.may_take = threading.Event()
        self.may_take.set()

    def take(self, result: Result) -> None:
        assert self.may_take.wait(GUARD_S)
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
                self.seen.wait(GUARD_S)
        if not self._openings:
            stop.wait(GUARD_S)


class Listed:
    """A source that sends what it is given at once, and is over."""

    name, lasting = "listed", False

    def __init__(self, sent: list[Arrival]) -> None:
        self._sent = sent

    def arrivals(self, stop: threading.Event) -> Iterator[Arrival]:
        yield from self._sent


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
    kept, tracker, began_s = Kept(), Tracker(), time.monotonic()
    live = LiveRun(Replay(drive(points, 4, posed=True), name="drive"), detector, sinks=[kept], queue=4)
    figures = live.run()
    assert (figures.arrived, figures.done, figures.dropped, kept.closed) == (4, 4, 0, 1)
    assert [result.arrival.name for result in kept.results] == ["000000", "000001", "000002", "000003"]
    for one, result in zip(drive(points, 4, posed=True)(), kept.results, strict=True):
        assert one.pose is not None
        time_ns = one.cloud.timestamp_ns
        expected = tracker.update(detector(one.cloud), pose=one.pose.map_from_lidar, time_ns=time_ns)
        assert result.tracks.to_dict() | {"source": None} == expected.to_dict() | {"source": None}
        assert 0 < result.latency_s < time.monotonic() - began_s


def test_the_oldest_scans_make_way(detector: Detector, points: Points, patience: Any) -> None:
    said: list[str] = []
    kept = Kept()
    source = Replay(drive(points, 50), name="drive", speed=float("inf"))
    live = LiveRun(
        source, detector, sinks=[kept], say=said.append, queue=2,
        # The first frame is computed when all scans have come.
        alive=lambda: patience(lambda: live.figures.dropped == 48),
    )  # fmt: skip
    figures = live.run()
    assert (figures.arrived, figures.dropped, figures.done) == (50, 48, 2)
    assert [result.arrival.name for result in kept.results] == ["000048", "000049"]
    assert any("no poses: tracks are in the frame of the sensor" in text for text in said)


def test_a_slow_sink_delays_no_scan(detector: Detector, points: Points) -> None:
    kept = Kept()
    kept.may_take.clear()

    def alive() -> None:
        # The sink holds its first result until all scans are done.
        if live.figures.done == 40:
            kept.may_take.set()

    source = Replay(drive(points, 40), name="drive", speed=float("inf"))
    live = LiveRun(source, detector, sinks=[kept], queue=40, alive=alive)
    figures = live.run()
    assert figures.done == 40 == figures.unpublished + len(kept.results)
    # 16 results wait, and the sink may hold one more.
    assert len(kept.results) in (16, 17)
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
    assert "the cable is out. Reopening in 0.01 s." in said
    assert "sent: ended. Reopening in 0.01 s." in said
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

    kept = Kept()
    source = Listed([arrival(points, number) for number in (5, 4, 6)])
    figures = LiveRun(source, detector, sinks=[kept], queue=3).run()
    assert [result.arrival.name for result in kept.results] == ["5", "6"]
    assert figures.late == 1


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
    # 40 scans a second, a little unevenly, of which every second one is taken.
    uneven_s = (0.0, 0.004, -0.004)
    source = Listed(
        [
            arrival(points, number)._replace(arrived_s=100 + number / 40 + uneven_s[number % 3])
            for number in range(8)
        ]
    )
    kept = Kept()
    figures = LiveRun(source, detector, sinks=[kept], queue=8, rate_hz=20).run()
    assert (figures.arrived, figures.skipped) == (8, 4)
    assert [result.arrival.name for result in kept.results] == ["0", "2", "4", "6"]
    with pytest.raises(ValueError, match="rate_hz must be"):
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


class Clock(threading.Event):
    """A clock that only waiting moves; ``stop`` of a source and the module ``time`` of it."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 50.0

    def monotonic(self) -> float:
        return self.now_s

    def time_ns(self) -> int:
        return START_NS + round(self.now_s * 1e9)

    def wait(self, timeout: float | None = None) -> bool:
        self.now_s += timeout or 0.0
        return False


def test_replays_keep_the_pace_of_their_times(points: Points, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("perception.live.replay.time", clock)
    came = list(Replay(drive(points, 3), name="drive", speed=2).arrivals(clock))
    assert [one.cloud.timestamp_ns for one in came] == [START_NS + k * 10**8 for k in range(3)]
    assert [one.arrived_s for one in came] == pytest.approx([50.0, 50.05, 50.1])

    def timeless() -> Iterator[Recorded]:
        # A clock that is put back, or scans without times, are ten a second.
        for one in drive(points, 3)():
            yield one._replace(cloud=replace(one.cloud, timestamp_ns=None))

    came = list(Replay(timeless, name="drive", speed=2).arrivals(clock))
    times = [one.cloud.timestamp_ns for one in came]
    assert [times[1] - times[0], times[2] - times[1]] == [10**8, 10**8]
    assert [one.arrived_s for one in came] == pytest.approx([50.1, 50.15, 50.2])
    with pytest.raises(ValueError, match="speed must be"):
        Replay(timeless, name="drive", speed=0)


def resident_bytes() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def held_by(live: LiveRun) -> dict[str, int]:
    """Entries of what a run holds."""
    figures, tracker = live.figures, live._tracker
    return {
        "scans": len(live._scans), "results": len(live._results), "identities": len(live._known),
        "recent": len(figures._recent), "tracks": len(tracker.state), "lost": len(tracker.lost.state),
    }  # fmt: skip


def grow_test(detector: Detector, points: Points, patience: Any, count: int, *, every: int) -> None:
    """Run many scans; half-way and at the end the same is held, to a few megabytes."""
    seen: list[tuple[int, dict[str, int]]] = []
    pulses = 0

    def alive() -> None:
        nonlocal pulses
        pulses += 1
        if pulses % every == 0:
            seen.append((resident_bytes(), held_by(live)))

    def recorded() -> Iterator[Recorded]:
        # Of 16 scans one is looked at, at least; the others come as fast as they can.
        for number, one in enumerate(drive(points, count, posed=True)()):
            patience(lambda number=number: 16 * live.figures.done >= number - 32)
            yield one

    source = Replay(recorded, name="drive", speed=float("inf"))
    live = LiveRun(source, detector, sinks=[], queue=2, alive=alive)
    gc.collect()
    figures = live.run()
    assert figures.arrived == count == figures.done + figures.dropped + figures.late
    assert figures.done >= count // 16 - 2
    assert len(seen) >= 4
    early, late = seen[len(seen) // 2], seen[-1]
    assert late[0] - early[0] < 8 * 2**20
    for name, length in late[1].items():
        # Bounds of the containers themselves, whatever came before.
        assert length <= {"scans": 2, "results": 16, "recent": 512}.get(name, 600), name


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_nothing_grows(detector: Detector, points: Points, patience: Any) -> None:
    grow_test(detector, points, patience, 2000, every=2)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_nothing_grows_in_as_many_scans_as_an_hour_has(
    detector: Detector, points: Points, patience: Any
) -> None:
    grow_test(detector, points, patience, 36_000, every=20)
