"""``--publish``: boxes, tracks and points for viewers and ROS 2."""

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

#: Foxglove's default address of a server.
_FOXGLOVE = ("127.0.0.1", 8765)


class ViewerSink:
    """A sink that sends results to viewers."""

    def __init__(self, recordings: Recordings) -> None:
        self._recordings = recordings

    def take(self, result: Result) -> None:
        """Show one result."""
        cloud, tracks = result.arrival.cloud, result.tracks
        moment = RecordingMoment(result.arrival.position, cloud.timestamp_ns)
        self._recordings.scan(cloud, tracks, moment, map_from_lidar=tracks.pose)
        numbers = {
            "latency_ms": result.latency_s * 1e3,
            "objects": len(tracks),
            "moving": int(tracks.moving.sum()),
            "points": len(cloud),
        }
        self._recordings.numbers(numbers, moment)

    def close(self) -> None:
        """Do nothing: the caller closes the recordings."""


def published(
    options: argparse.Namespace, transform: ScanTransform, stack: ExitStack, say: Callable[[str], None]
) -> list[Sink]:
    """Create the sinks of ``--publish``.

    Args:
        options: options of the command. ``ros2`` alone publishes where the source of ROS 2 is.
        transform: transform of the scans.
        stack: closes the viewers.
        say: called with messages for the user.

    Raises:
        ImportError: a library is missing; the message has the pip command.
        ValueError: an argument of ``--publish`` is invalid.
        OSError: the port is in use.
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
            address = _ros2(place, options.source)
            sinks.append(Ros2Boxes(address, transform=transform, predict_s=predict_s(options), say=say))
        else:
            expected = "foxglove[=HOST:PORT], rerun[=ADDRESS] or ros2[=[//HOST[:PORT]][/NAMESPACE]]"
            raise ValueError(f"--publish {word}: expected {expected}")
    if rerun is not None or foxglove is not None:
        opened = open_recordings(rerun=rerun, foxglove=foxglove, title="perceive live")
        sinks.append(ViewerSink(stack.enter_context(opened)))
    return sinks


def predict_s(options: argparse.Namespace) -> float | None:
    """Return the seconds of ``--predict``; None without it."""
    return None if options.predict is None else float(options.predict) * 1e-3


def _ros2(place: str, source: str) -> Ros2Address:
    """Return the address for boxes: as given, else that of the source, in the root namespace."""
    if not place and source.startswith(f"{SCHEME}:"):
        return replace(Ros2Address.parse(source), name="")
    return Ros2Address.parse(f"{SCHEME}:{place}")
