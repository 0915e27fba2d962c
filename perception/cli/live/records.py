"""The records of a live run, as ``perceive track`` writes them, and where they go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from perception.cli.scans.surroundings import Surroundings
from perception.live import Result

Writer = Callable[[dict[str, Any], int], None]


class Records:
    """A sink that makes a record of each result.

    Args:
        surroundings: further fields.
        writers: each gets the record, and how often tracks began anew before it.
        at_end: called when there are no more.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        writers: Sequence[Writer],
        at_end: Sequence[Callable[[], None]] = (),
    ) -> None:
        self._surroundings, self._writers, self._at_end = surroundings, tuple(writers), tuple(at_end)

    def take(self, result: Result) -> None:
        """Make a record and hand it on."""
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
        """There are no more."""
        for end in self._at_end:
            end()
