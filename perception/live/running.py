"""A live run: detect and track in the newest scan, without waiting for sinks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from perception.detector import Detector
from perception.errors import DataError
from perception.io.poses import ScanPose
from perception.live.arrivals import Arrival, Source
from perception.live.figures import Figures
from perception.live.newest import NewestQueue
from perception.live.reading import FIRST_WAIT_S, Reader
from perception.rigid_motion import checked_pose
from perception.scans.sweeps import SweepBuffer
from perception.track.config import TrackerConfig
from perception.track.prediction import TrackPredictor
from perception.track.state import TRACK_ID
from perception.track.tracker import Tracker
from perception.track.tracks import Tracks
from perception.types import Detections

#: Default capacity for waiting scans.
QUEUE = 1
#: Capacity for results that wait for sinks.
_RESULTS = 16
#: Seconds between heartbeats without scans.
_PULSE_S = 0.25
#: A scan up to this much earlier than the one before is late; otherwise the clock was set back.
_LATE_NS = 1_000_000_000
#: Seconds that sinks have to finish.
_GRACE_S = 30.0


class Result(NamedTuple):
    """A scan with its detections and tracks.

    Attributes:
        arrival: the scan.
        found: detections in the scan.
        tracks: tracks after the scan.
        pose: pose of the sensor, if known.
        latency_s: time from arrival to tracks.
        restarts: number of tracker restarts before it; track numbers repeat after a restart.
        predictor: predicts the tracks to a later time.
    """

    arrival: Arrival
    found: Detections
    tracks: Tracks
    pose: ScanPose | None
    latency_s: float
    restarts: int
    predictor: TrackPredictor

    def deliver(self, extra_s: float = 0.0) -> Delivery:
        """Return the tracks predicted to now, or to some seconds later.

        The time since the arrival of the scan is measured. The time before, from the scan to its arrival, is
        unknown here; add it if the source stamps scans earlier.
        """
        age_s = time.monotonic() - self.arrival.arrived_s + extra_s
        return Delivery(self.predictor.predict(self.predictor.time_ns + round(age_s * 1e9)), age_s)


class Delivery(NamedTuple):
    """Tracks as they are when somebody reads them.

    Attributes:
        tracks: predicted to the time of delivery.
        age_s: time from the arrival of the scan to that time.
    """

    tracks: Tracks
    age_s: float


class Sink(Protocol):
    """A consumer of results, called from one thread."""

    def take(self, result: Result) -> None:
        """Take the next result."""

    def close(self) -> None:
        """Finish."""


class LiveRun:
    """Detection and tracking in the scans of a source, always the newest.

    One thread reads the source, the caller's thread computes, and one thread passes results to sinks. Short
    queues between them drop their oldest entries, so that slow frames or disks do not add delay.

    Args:
        source: source of scans.
        detector: detector.
        sinks: consumers of results, closed at the end.
        config: configuration of the tracker.
        pose_of: returns the pose of a scan whose source does not know it, or None.
        queue: capacity for waiting scans.
        rate_hz: largest number of scans per second to process.
        figures: counts to use instead of new ones.
        say: called with messages for the user, from any thread.
        alive: called several times per second during the run.
        first_wait_s: seconds before a broken source is reopened; failures double it, up to half a minute.

    Attributes:
        figures: counts, during and after the run.

    Raises:
        ValueError: ``queue`` or ``rate_hz`` is not positive.
    """

    def __init__(
        self,
        source: Source,
        detector: Detector,
        *,
        sinks: Sequence[Sink] = (),
        config: TrackerConfig | None = None,
        pose_of: Callable[[Arrival], ScanPose | None] | None = None,
        queue: int = QUEUE,
        rate_hz: float | None = None,
        figures: Figures | None = None,
        say: Callable[[str], None] = lambda _: None,
        alive: Callable[[], None] = lambda: None,
        first_wait_s: float = FIRST_WAIT_S,
    ) -> None:
        if rate_hz is not None and not rate_hz > 0:
            raise ValueError(f"rate_hz must be positive, got {rate_hz}")
        self.figures = Figures() if figures is None else figures
        self._scans, self._results = NewestQueue[Arrival](queue), NewestQueue[Result](_RESULTS)
        self._stop = threading.Event()
        self._reader = Reader(
            source, self._scans, self.figures, self._stop, say, rate_hz=rate_hz, first_wait_s=first_wait_s
        )
        self._handing = threading.Thread(target=self._hand_out, name="results", daemon=True)
        self._detector, self._sinks, self._config = detector, tuple(sinks), config
        self._pose_of, self._say, self._alive = pose_of, say, alive
        self._tracker = Tracker(config)
        self._sweeps = SweepBuffer(detector.config.pillars)
        self._known: set[int] = set()
        self._objects = 0
        self._posed = False
        self._sink_error: BaseException | None = None

    def stop(self) -> None:
        """End the run after the current scan; safe in signal handlers and other threads."""
        self._stop.set()

    def run(self) -> Figures:
        """Run until the source ends or :meth:`stop` is called, then pass the remaining results to sinks.

        Raises:
            DataError, OSError: a sink broke, or a source that is not reopened.
        """
        self._reader.start()
        self._handing.start()
        try:
            while not self._stop.is_set() and not self._scans.over:
                self._alive()
                arrival = self._scans.take(_PULSE_S)
                if arrival is not None:
                    self._frame(arrival)
        finally:
            self._stop.set()
            self._results.close()
            self._reader.join(_GRACE_S)
            until_s = time.monotonic() + _GRACE_S
            while self._handing.is_alive() and time.monotonic() < until_s:
                self._alive()
                self._handing.join(_PULSE_S)
        for error in (self._reader.error, self._sink_error):
            if error is not None:
                raise error
        return self.figures

    def _frame(self, arrival: Arrival) -> None:
        figures, tracker = self.figures, self._tracker
        time_ns = arrival.cloud.timestamp_ns
        if tracker.time_ns is not None and time_ns is not None and time_ns < tracker.time_ns:
            if tracker.time_ns - time_ns <= _LATE_NS:
                figures.late += 1
                return
            self._say(f"{arrival.name}: the clock of the scans was set back, so tracking restarts")
            figures.restarts += 1
            tracker = self._tracker = Tracker(self._config)
            self._known.clear()
        pose = self._pose(arrival)
        matrix = None if pose is None else pose.map_from_lidar
        try:
            found = self._detector(self._sweeps.merge(arrival.cloud, matrix))
        except DataError as error:
            figures.unreadable += 1
            self._say(f"skipped: {arrival.name}: {error}")
            return
        tracks = tracker.update(found, pose=matrix, time_ns=time_ns)
        latency_s = time.monotonic() - arrival.arrived_s
        figures.frame(latency_s, tracks=len(tracks), objects=self._count(tracks))
        for warning in (*found.warnings, *tracks.warnings):
            self._say(warning)
        if self._sinks:
            self._results.put(
                Result(arrival, found, tracks, pose, latency_s, figures.restarts, tracker.predictor())
            )
            figures.unpublished = self._results.dropped

    def _pose(self, arrival: Arrival) -> ScanPose | None:
        pose = arrival.pose
        if pose is None and self._pose_of is not None:
            try:
                pose = self._pose_of(arrival)
            except DataError as error:
                self._say(str(error))
        if pose is not None:
            try:
                checked_pose(pose.map_from_lidar)
            except ValueError as error:
                # The pose is not rigid, so the frame is used without it.
                self.figures.without_pose += 1
                self._say(f"{arrival.name}: {error}")
                return None
        if pose is None and not self._posed:
            self._say(
                "no poses: tracks are in the frame of the sensor, with relative velocities. Add --poses FILE."
                if self._pose_of is None
                else "no pose yet: the map is the frame of the sensor until one arrives"
            )
        self._posed |= pose is not None
        self.figures.without_pose += pose is None and (self._posed or self._pose_of is not None)
        return pose

    def _count(self, tracks: Tracks) -> int:
        """Count all tracks so far, without storing more identities than the tracker."""
        current = set(tracks.track_id.tolist())
        self._objects += len(current - self._known)
        held = (self._tracker.state, self._tracker.lost.state)
        kept = {number for state in held for number in state.counts[:, TRACK_ID].tolist()}
        self._known = (self._known & kept) | current
        return self._objects

    def _hand_out(self) -> None:
        try:
            while not self._results.over:
                result = self._results.take(_PULSE_S)
                if result is not None:
                    for sink in self._sinks:
                        sink.take(result)
        except BaseException as error:
            self._sink_error = error
            self._stop.set()
        for sink in self._sinks:
            try:
                sink.close()
            except Exception as error:
                self._sink_error = self._sink_error or error
