"""``--publish``: boxes, tracks and points for those who look on."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from perception.cli.live.options import address_of
from perception.io.transform import ScanTransform
from perception.live import Result, Ros2Address, Ros2Boxes, Sink
from perception.live.ros2 import SCHEME
from perception.visualise.recording import RecordingMoment
from perception.visualise.recordings import Recordings, open_recordings

#: Where Foxglove looks for a server.
_FOXGLOVE = ("127.0.0.1", 8765)


class Published:
    """A sink that shows results.

    Args:
        recordings: to which they go.
    """

    def __init__(self, recordings: Recordings) -> None:
        self._recordings = recordings

    def take(self, result: Result) -> None:
        """Show one."""
        cloud, tracks = result.arrival.cloud, result.tracks
        moment = RecordingMoment(result.arrival.position, cloud.timestamp_ns)
        self._recordings.scan(cloud, tracks, moment, map_from_lidar=tracks.pose)
        numbers = {
            "latency_ms": result.latency_s * 1e3,
            "things": len(tracks),
            "moving": int(tracks.moving.sum()),
            "points": len(cloud),
        }
        self._recordings.numbers(numbers, moment)

    def close(self) -> None:
        """Whoever looks on has seen all; the recordings are closed by who opened them."""


def published(
    options: argparse.Namespace, transform: ScanTransform, stack: ExitStack, say: Callable[[str], None]
) -> list[Sink]:
    """What the options ask for.

    Args:
        options: ``publish`` has words ``foxglove``, ``foxglove=HOST:PORT``, ``rerun``, ``rerun=ADDRESS``,
            ``ros2``, which is where a source of ROS 2 is, or ``ros2=[//HOST[:PORT]][/NAMESPACE]``.
        transform: that scans went through.
        stack: closes it.
        say: called with what a person should know.

    Raises:
        ImportError: a library is missing; the message names the extra.
        ValueError: a word is none of these.
        OSError: the port is taken.
    """
    rerun: str | None = None
    foxglove: tuple[str, int] | None = None
    sinks: list[Sink] = []
    for word in options.publish:
        kind, _, place = word.partition("=")
        if kind == "rerun":
            rerun = place or "live"
        elif kind == "foxglove":
            foxglove = address_of("--publish foxglove=", place) if place else _FOXGLOVE
        elif kind == SCHEME:
            sinks.append(Ros2Boxes(_ros2(place, options.source), transform=transform, say=say))
        else:
            expected = "foxglove[=HOST:PORT], rerun[=ADDRESS] or ros2[=[//HOST[:PORT]][/NAMESPACE]]"
            raise ValueError(f"--publish {word}: expected {expected}")
    if rerun is not None or foxglove is not None:
        opened = open_recordings(rerun=rerun, foxglove=foxglove, title="perceive live")
        sinks.append(Published(stack.enter_context(opened)))
    return sinks


def _ros2(place: str, source: str) -> Ros2Address:
    """Where boxes go: as it is said, else where scans come from, in the root namespace."""
    if not place and source.startswith(f"{SCHEME}:"):
        return replace(Ros2Address.parse(source), name="")
    return Ros2Address.parse(f"{SCHEME}:{place}")
