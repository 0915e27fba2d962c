"""Records of a live run, in the format of ``perceive track``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perception.cli.scans.surroundings import Surroundings
from perception.live import Result

Writer = Callable[[dict[str, Any], int], None]


class Records:
    """A sink that turns results into records.

    Args:
        surroundings: adds fields.
        writers: called with each record and the number of restarts of the tracker.
        at_end: called at the end.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        writers: Sequence[Writer],
        at_end: Sequence[Callable[[], None]] = (),
    ) -> None:
        self._surroundings, self._writers, self._at_end = surroundings, tuple(writers), tuple(at_end)

    def take(self, result: Result) -> None:
        """Pass the record of a result to the writers."""
        arrival, pose = result.arrival, result.pose
        record = {
            "frame": arrival.name,
            **result.tracks.to_dict(),
            "source": arrival.cloud.source or arrival.name,
            "time_ns": arrival.cloud.timestamp_ns,
            "latency_ms": round(result.latency_s * 1e3, 2),
            **({} if pose is None else {"pose": pose.to_dict()}),
            **self._surroundings.fields(arrival.cloud, result.found),
        }
        for write in self._writers:
            write(record, result.restarts)

    def close(self) -> None:
        """Call the functions for the end."""
        for end in self._at_end:
            end()
