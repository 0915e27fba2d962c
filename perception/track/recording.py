"""Recordings: tracks as they come, two seconds late, or once all of it is known."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, get_args

from perception.track.config import TrackerConfig
from perception.track.mending import mend, tell
from perception.track.tracker import Sightings, Tracker
from perception.track.tracks import Tracks
from perception.types import Detections

Mode = Literal["online", "delayed", "global"]
MODES: tuple[Mode, ...] = get_args(Mode)

#: How late a delayed answer may come, and how much of what was before its frame is looked at.
DELAY_S, _BEFORE_S = 2.0, 1.0
#: Frames are answered together: what is looked at is the same for all of them.
_TOGETHER = 0.25


class Moment(NamedTuple):
    """A frame of a recording: see :meth:`Tracker.update`."""

    detections: Detections
    pose: Any = None
    time_ns: int | None = None


class DelayedTracker:
    """A tracker whose answers come later and know what came until then: smoothed, without gaps, fewer wrong.

    >>> tracker = DelayedTracker()
    >>> for detections, pose, time_ns in drive:
    ...     for tracks in tracker.update(detections, pose=pose, time_ns=time_ns):
    ...         tracks.timestamp_ns, tracks.track_id
    >>> for tracks in tracker.finish(): ...

    Args:
        config: what to expect of things.
        delay_s: how late an answer may come; the frames of the last quarter of it are answered together.

    Raises:
        ValueError: the delay is negative.
    """

    def __init__(self, config: TrackerConfig | None = None, *, delay_s: float = DELAY_S) -> None:
        if not delay_s >= 0:
            raise ValueError(f"delay_s must not be negative, got {delay_s}")
        self._tracker = Tracker(config)
        self._delay_ns = round(delay_s * 1e9)
        self._frames: deque[Sightings] = deque()
        self._told = 0

    def update(self, detections: Detections, *, pose: Any = None, time_ns: int | None = None) -> list[Tracks]:
        """Take a frame; the tracks of those that are old enough now, often none.

        Arguments and errors are those of :meth:`Tracker.update`.
        """
        seen = self._tracker.observe(detections, pose=pose, time_ns=time_ns)
        self._frames.append(seen)
        if self._frames[self._told].time_ns > seen.time_ns - self._delay_ns:
            return []
        return self._tell(seen.time_ns - round(self._delay_ns * (1 - _TOGETHER)))

    def finish(self) -> list[Tracks]:
        """The tracks of the frames that are left."""
        return self._tell(None)

    def _tell(self, until_ns: int | None) -> list[Tracks]:
        frames = list(self._frames)
        stop = self._told
        while stop < len(frames) and (until_ns is None or frames[stop].time_ns <= until_ns):
            stop += 1
        if stop == self._told:
            return []
        parameters = self._tracker.parameters
        mended = mend(frames, parameters, join=False)
        found = [tell(mended, number, frames[number], parameters) for number in range(self._told, stop)]
        self._told = stop
        oldest_ns = frames[stop - 1].time_ns - round(_BEFORE_S * 1e9)
        while self._told and self._frames[0].time_ns < oldest_ns:
            self._frames.popleft()
            self._told -= 1
        return found


def track_recording(
    moments: Iterable[Moment], config: TrackerConfig | None = None, *, mode: Mode = "online"
) -> Iterator[Tracks]:
    """Tracks of each frame of a recording, in its order.

    Args:
        moments: its frames.
        config: what to expect of things.
        mode: ``"online"``: what a frame tells of itself and of those before it. ``"delayed"``: what was known
            two seconds later. ``"global"``: what is known in the end; nothing is told before all was read.

    Raises:
        ValueError: an unknown mode, or those of :meth:`Tracker.update`.
    """
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    if mode == "online":
        tracker = Tracker(config)
        for moment in moments:
            yield tracker.update(moment.detections, pose=moment.pose, time_ns=moment.time_ns)
        return
    if mode == "delayed":
        delayed = DelayedTracker(config)
        for moment in moments:
            yield from delayed.update(moment.detections, pose=moment.pose, time_ns=moment.time_ns)
        yield from delayed.finish()
        return
    tracker = Tracker(config)
    frames = [
        tracker.observe(moment.detections, pose=moment.pose, time_ns=moment.time_ns) for moment in moments
    ]
    if frames:
        mended = mend(frames, tracker.parameters, join=True)
        for number, frame in enumerate(frames):
            yield tell(mended, number, frame, tracker.parameters)
