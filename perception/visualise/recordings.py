"""All requested recordings, opened and written together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

from perception.types import Detections, PointCloud
from perception.visualise.recording import Mark, Recording, RecordingMoment


class Recordings(AbstractContextManager["Recordings"]):
    """Several recordings at once; closed at the end of the block."""

    def __init__(self, recordings: Sequence[Recording] = ()) -> None:
        self._recordings = tuple(recordings)

    def __bool__(self) -> bool:
        return bool(self._recordings)

    def __exit__(self, *exception: object) -> None:
        self.close()

    def scan(self, cloud: PointCloud, detections: Detections, moment: RecordingMoment, **known: Any) -> None:
        """Record a scan; see :class:`Recording`."""
        for recording in self._recordings:
            recording.scan(cloud, detections, moment, **known)

    def marks(self, marks: Sequence[Mark], moment: RecordingMoment) -> None:
        """Record marks; see :class:`Recording`."""
        for recording in self._recordings:
            recording.marks(marks, moment)

    def numbers(self, values: Mapping[str, float], moment: RecordingMoment) -> None:
        """Record figures; see :class:`Recording`."""
        for recording in self._recordings:
            recording.numbers(values, moment)

    def close(self) -> None:
        """Finish all files."""
        with ExitStack() as stack:  # Close the others even if one fails.
            for recording in self._recordings:
                stack.callback(recording.close)


def open_recordings(
    *,
    rerun: str | None = None,
    mcap: Path | None = None,
    foxglove: tuple[str, int] | None = None,
    title: str,
) -> Recordings:
    """Open the requested recordings.

    Args:
        rerun: an .rrd file, ``live`` to open a viewer, or a viewer's address (``rerun+http://...``).
        mcap: an .mcap file for Foxglove.
        foxglove: local host and port that Foxglove connects to.
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

            import_foxglove("--mcap")  # Check the import before the file is created.
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
