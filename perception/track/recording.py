"""Tracking of recordings: online, two seconds delayed, or with the whole recording known."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, get_args

from perception.track.config import TrackerConfig
from perception.track.refinement import refine, tracks_in_frame
from perception.track.tracker import FrameAssignment, Tracker
from perception.track.tracks import Tracks
from perception.types import Detections

Mode = Literal["online", "delayed", "global"]
MODES: tuple[Mode, ...] = get_args(Mode)

#: Longest delay of an answer, and the history before its frame that is used.
DELAY_S, _BEFORE_S = 2.0, 1.0
#: Share of the delay whose frames are answered together, because one refinement serves all of them.
_BATCH_SHARE = 0.25


class Moment(NamedTuple):
    """A frame of a recording: arguments of :meth:`Tracker.update`."""

    detections: Detections
    pose: Any = None
    time_ns: int | None = None


class DelayedTracker:
    """A tracker that answers late and uses the frames until then: smoothed, without gaps, with fewer errors.

    >>> tracker = DelayedTracker()
    >>> for detections, pose, time_ns in drive:
    ...     for tracks in tracker.update(detections, pose=pose, time_ns=time_ns):
    ...         tracks.timestamp_ns, tracks.track_id
    >>> for tracks in tracker.finish(): ...

    Args:
        config: expected motion and noise per class.
        delay_s: longest delay of an answer; frames of the last quarter of it are answered together.

    Raises:
        ValueError: the delay is negative.
    """

    def __init__(self, config: TrackerConfig | None = None, *, delay_s: float = DELAY_S) -> None:
        if not delay_s >= 0:
            raise ValueError(f"delay_s must not be negative, got {delay_s}")
        self._tracker = Tracker(config)
        self._delay_ns = round(delay_s * 1e9)
        self._frames: deque[FrameAssignment] = deque()
        self._answered = 0

    def update(self, detections: Detections, *, pose: Any = None, time_ns: int | None = None) -> list[Tracks]:
        """Add a frame; return the tracks of all frames that are old enough now, often none.

        Arguments and errors are those of :meth:`Tracker.update`.
        """
        seen = self._tracker.observe(detections, pose=pose, time_ns=time_ns)
        self._frames.append(seen)
        if self._frames[self._answered].time_ns > seen.time_ns - self._delay_ns:
            return []
        return self._answer(seen.time_ns - round(self._delay_ns * (1 - _BATCH_SHARE)))

    def finish(self) -> list[Tracks]:
        """Return the tracks of all remaining frames."""
        return self._answer(None)

    def _answer(self, until_ns: int | None) -> list[Tracks]:
        frames = list(self._frames)
        stop = self._answered
        while stop < len(frames) and (until_ns is None or frames[stop].time_ns <= until_ns):
            stop += 1
        if stop == self._answered:
            return []
        parameters = self._tracker.parameters
        refined = refine(frames, parameters, join=False)
        found = [
            tracks_in_frame(refined, number, frames[number], parameters)
            for number in range(self._answered, stop)
        ]
        self._answered = stop
        oldest_ns = frames[stop - 1].time_ns - round(_BEFORE_S * 1e9)
        while self._answered and self._frames[0].time_ns < oldest_ns:
            self._frames.popleft()
            self._answered -= 1
        return found


def track_recording(
    moments: Iterable[Moment], config: TrackerConfig | None = None, *, mode: Mode = "online"
) -> Iterator[Tracks]:
    """Yield the tracks of each frame of a recording, in order.

    Args:
        moments: its frames.
        config: expected motion and noise per class.
        mode: ``"online"`` uses each frame and those before it. ``"delayed"`` also uses the next two seconds.
            ``"global"`` uses the whole recording and yields nothing before all of it is read.

    Raises:
        ValueError: an unknown mode, or an error of :meth:`Tracker.update`.
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
        refined = refine(frames, tracker.parameters, join=True)
        for number, frame in enumerate(frames):
            yield tracks_in_frame(refined, number, frame, tracker.parameters)
