"""``--publish``: boxes, tracks and points for those who look on."""

from __future__ import annotations

from contextlib import ExitStack

from perception.cli.live_options import address_of
from perception.live import Result
from perception.visualise.recording import Moment
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
        moment = Moment(result.arrival.position, cloud.timestamp_ns)
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


def published(words: list[str], stack: ExitStack) -> Published | None:
    """What the options ask for.

    Args:
        words: ``foxglove``, ``foxglove=HOST:PORT``, ``rerun`` or ``rerun=ADDRESS``.
        stack: closes it.

    Raises:
        ImportError: a library is missing; the message names the extra.
        ValueError: a word is none of these.
        OSError: the port is taken.
    """
    rerun: str | None = None
    foxglove: tuple[str, int] | None = None
    for word in words:
        kind, _, place = word.partition("=")
        if kind == "rerun":
            rerun = place or "live"
        elif kind == "foxglove":
            foxglove = address_of("--publish foxglove=", place) if place else _FOXGLOVE
        else:
            raise ValueError(f"--publish {word}: expected foxglove[=HOST:PORT] or rerun[=ADDRESS]")
    if rerun is None and foxglove is None:
        return None
    opened = open_recordings(rerun=rerun, foxglove=foxglove, title="perceive live")
    return Published(stack.enter_context(opened))
