"""Recordings of all kinds that were asked for, opened and written together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from perception.types import Detections, PointCloud
from perception.visualise.recording import Mark, Recording, RecordingMoment


class Recordings(AbstractContextManager["Recordings"]):
    """Several recordings at once; closed when the block is left.

    Args:
        recordings: may be none.
    """

    def __init__(self, recordings: Sequence[Recording] = ()) -> None:
        self._recordings = tuple(recordings)

    def __bool__(self) -> bool:
        return bool(self._recordings)

    def __exit__(self, *exception: object) -> None:
        self.close()

    def scan(self, cloud: PointCloud, detections: Detections, moment: RecordingMoment, **known: Any) -> None:
        """See :class:`Recording`."""
        for recording in self._recordings:
            recording.scan(cloud, detections, moment, **known)

    def marks(self, marks: Sequence[Mark], moment: RecordingMoment) -> None:
        """See :class:`Recording`."""
        for recording in self._recordings:
            recording.marks(marks, moment)

    def numbers(self, values: Mapping[str, float], moment: RecordingMoment) -> None:
        """See :class:`Recording`."""
        for recording in self._recordings:
            recording.numbers(values, moment)

    def close(self) -> None:
        """Finish all files."""
        with ExitStack() as stack:  # One that fails keeps none of the others open.
            for recording in self._recordings:
                stack.callback(recording.close)


def open_recordings(
    *,
    rerun: str | None = None,
    mcap: Path | None = None,
    foxglove: tuple[str, int] | None = None,
    title: str,
) -> Recordings:
    """Begin what was asked for.

    Args:
        rerun: an .rrd file, ``live`` to open a viewer, or the address of one (``rerun+http://...``).
        mcap: an .mcap file for Foxglove.
        foxglove: host and port of this computer that Foxglove connects to.
        title: of the recording.

    Raises:
        ImportError: a library is missing; the message names the extra.
        ValueError: a file has another suffix.
        OSError: a file cannot be written, or the port is taken.
    """
    opened: list[Recording] = []
    try:
        if mcap is not None:
            from perception.visualise.foxglove_recording import FoxgloveRecording
            from perception.visualise.foxglove_sinks import McapSink, import_foxglove

            import_foxglove("--mcap")  # Before a file is made.
            opened.append(FoxgloveRecording(McapSink(mcap)))
        if foxglove is not None:
            from perception.visualise.foxglove_recording import FoxgloveRecording
            from perception.visualise.foxglove_sinks import ServerSink

            opened.append(FoxgloveRecording(ServerSink(*foxglove)))
        if rerun is not None:
            from perception.visualise.rerun_recording import RerunRecording

            opened.append(RerunRecording(rerun, title=title))
    except BaseException:
        Recordings(opened).close()
        raise
    return Recordings(opened)
