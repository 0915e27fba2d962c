"""Recording of scans, boxes and memories for the Rerun viewer, as an .rrd file or live."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.colors import to_rgb

from perception.track.tracks import Tracks
from perception.types import Boxes3D, Detections, PointCloud
from perception.visualise.palette import GROUND_TRUTH, class_colour
from perception.visualise.recording import Mark, PoseTrail, RecordingMoment, check_file, height_colours
from perception.visualise.scene import DrawnBoxes, detected, finite_points, labelled
from perception.visualise.trails import Trails
from sparse_core.common.files import GrowingFile

_PIECE_BYTES = 1 << 16


class RerunFile:
    """A file that Rerun fills through a pipe, because Rerun only logs failed writes and then hangs.

    Args:
        path: of the file; an existing file is replaced.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)
        self._error: OSError | None = None
        reading, self._writing = os.pipe()
        self._thread = threading.Thread(target=self._copy, args=(reading,), name="rerun-file", daemon=True)
        self._thread.start()
        #: Path that Rerun writes to.
        self.address = f"/dev/fd/{self._writing}"

    def check(self) -> None:
        """Raise the error of a failed write.

        Raises:
            OSError: a write failed; names the file.
        """
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Finish the file after Rerun has disconnected.

        Raises:
            OSError: a write failed; names the file.
        """
        os.close(self._writing)
        self._thread.join()
        self._file.close()
        self.check()

    def _copy(self, reading: int) -> None:
        with open(reading, "rb", buffering=0) as pipe:
            while piece := pipe.read(_PIECE_BYTES):
                # Keep reading after an error, because Rerun blocks on a full pipe.
                if self._error is None:
                    try:
                        self._file.write(piece)
                    except OSError as error:
                        self._error = error


LIVE = "live"
_POINT_RADIUS_M, _PLACE_RADIUS_M = 0.03, 0.25
_ROBOT = "map/robot"


class RerunRecording:
    """Recording for Rerun; see :class:`perception.visualise.recording.Recording`.

    The timelines are ``scan`` (number) and ``scan_time`` (time, if known). Two recordings of the same scans
    contain the same data; their bytes differ, because Rerun numbers its chunks by time.

    Args:
        target: an .rrd file, ``live`` to open a viewer, or a viewer's address (``rerun+http://...``).
        title: of the recording.

    Raises:
        ImportError: Rerun is missing.
        ValueError: the target is none of these.
        OSError: the file cannot be written.
    """

    def __init__(self, target: str, *, title: str) -> None:
        self._rerun = _import_rerun()
        # A fixed id: the same scans give the same recording.
        self._stream = self._rerun.RecordingStream("sparsight", recording_id=title, send_properties=False)
        # Rerun keeps times by recording id; times of an earlier recording must not appear.
        self._stream.reset_time()
        self._stream.set_log_time_enabled(False)
        self._stream.set_log_tick_enabled(False)
        self._file: RerunFile | None = None
        blueprint = self._blueprint()
        if target == LIVE:
            self._stream.spawn(default_blueprint=blueprint)
        elif "://" in target:
            self._stream.connect_grpc(target, default_blueprint=blueprint)
        else:
            self._file = RerunFile(check_file(Path(target), ".rrd"))
            self._stream.save(self._file.address, default_blueprint=blueprint)
        self._stream.send_recording_name(title)
        self._stream.log("map", self._rerun.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
        self._trajectory, self._trails = PoseTrail(), Trails()

    def scan(
        self,
        cloud: PointCloud,
        detections: Detections,
        moment: RecordingMoment,
        *,
        map_from_lidar: npt.NDArray[np.float64] | None = None,
        ground_truth: Boxes3D | None = None,
    ) -> None:
        """Record a scan with its detections; points that are not finite are skipped."""
        rerun, log = self._rerun, self._stream.log
        self._at(moment)
        points = finite_points(cloud.points)
        if map_from_lidar is not None:
            self._trajectory.add(map_from_lidar, moment.at_ns)
            log(
                _ROBOT,
                rerun.Transform3D(translation=map_from_lidar[:3, 3], mat3x3=map_from_lidar[:3, :3]),
            )
            line = np.array([pose[:3, 3] for _, pose in self._trajectory.poses])
            log("map/trajectory", rerun.LineStrips3D([line], colors=[180, 190, 205], radii=0.06))
        log(
            f"{_ROBOT}/points",
            rerun.Points3D(points[:, :3], colors=height_colours(points), radii=_POINT_RADIUS_M),
        )
        log(f"{_ROBOT}/detections", self._boxes(detected(detections)))
        if isinstance(detections, Tracks):
            self._tracks(detections)
        if ground_truth is not None:
            log(f"{_ROBOT}/ground_truth", self._boxes(labelled(ground_truth)))
        for warning in detections.warnings:
            log("log", rerun.TextLog(warning, level="WARN"))

    def _tracks(self, tracks: Tracks) -> None:
        """Record track ids and velocities with the boxes, and trails in the map."""
        rerun = self._rerun
        self._trails.add(tracks)
        known = {
            "track_id": tracks.track_id,
            "velocity": tracks.velocity.reshape(-1),
            "moving": tracks.moving,
        }
        values = rerun.AnyValues(**known) if len(tracks) else rerun.Clear(recursive=False)
        self._stream.log(f"{_ROBOT}/detections/tracks", values)
        trails = self._trails.in_map(tracks)
        colours = _bytes([to_rgb(class_colour(label).dark) for label in tracks.labels])
        self._stream.log("map/trails", rerun.LineStrips3D(trails, colors=colours, radii=0.04))

    def marks(self, marks: Sequence[Mark], moment: RecordingMoment) -> None:
        """Record all current marks."""
        rerun = self._rerun
        self._at(moment)
        objects = [mark for mark in marks if any(mark.size_m)]
        places = [mark for mark in marks if not any(mark.size_m)]
        self._stream.log(
            "map/memories/things",
            rerun.Boxes3D(
                centers=np.array([mark.position for mark in objects]).reshape(-1, 3),
                sizes=np.array([mark.size_m for mark in objects]).reshape(-1, 3),
                quaternions=_quaternions([mark.yaw for mark in objects]),
                colors=_bytes([mark.colour for mark in objects]),
                labels=[mark.text for mark in objects],
                show_labels=False,
            ),
        )
        self._stream.log(
            "map/memories/places",
            rerun.Points3D(
                np.array([mark.position for mark in places]).reshape(-1, 3),
                colors=_bytes([mark.colour for mark in places]),
                labels=[mark.text for mark in places],
                radii=_PLACE_RADIUS_M,
                show_labels=False,
            ),
        )

    def numbers(self, values: Mapping[str, float], moment: RecordingMoment) -> None:
        """Record figures to plot over time."""
        self._at(moment)
        for name, value in values.items():
            self._stream.log(f"numbers/{name}", self._rerun.Scalars(value))

    def close(self) -> None:
        """Finish the file, or flush to the viewer.

        Raises:
            OSError: the file could not be written.
        """
        self._stream.flush()
        self._stream.disconnect()
        if self._file is not None:
            self._file.close()

    def _at(self, moment: RecordingMoment) -> None:
        if self._file is not None:
            self._file.check()
        self._stream.set_time("scan", sequence=moment.number)
        if moment.time_ns is not None:
            self._stream.set_time("scan_time", timestamp=np.datetime64(moment.time_ns, "ns"))

    def _boxes(self, drawn: DrawnBoxes) -> Any:
        if drawn.scores is None:
            labels = drawn.labels
            colours = [to_rgb(GROUND_TRUTH.dark)] * len(labels)
        else:
            labels = drawn.texts
            colours = [to_rgb(class_colour(label).dark) for label in drawn.labels]
        return self._rerun.Boxes3D(
            centers=drawn.boxes[:, :3],
            sizes=drawn.boxes[:, 3:6],
            quaternions=_quaternions(drawn.boxes[:, 6]),
            colors=_bytes(colours),
            labels=labels,
            show_labels=drawn.scores is not None,
        )

    def _blueprint(self) -> Any:
        from rerun import blueprint

        return blueprint.Blueprint(
            blueprint.Horizontal(
                blueprint.Spatial3DView(origin="map", name="map"),
                blueprint.Vertical(
                    blueprint.TimeSeriesView(origin="numbers", name="numbers"),
                    blueprint.TextLogView(origin="log", name="warnings"),
                ),
                column_shares=[3, 1],
            ),
            collapse_panels=True,
        )


def _quaternions(yaws: Sequence[float] | npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return (M, 4) quaternions x, y, z, w of headings."""
    half = np.asarray(yaws, np.float64).reshape(-1) / 2
    zero = np.zeros_like(half)
    return np.column_stack([zero, zero, np.sin(half), np.cos(half)])


def _bytes(colours: Sequence[tuple[float, float, float]]) -> npt.NDArray[np.uint8]:
    return np.rint(np.array(colours, np.float64).reshape(-1, 3) * 255).astype(np.uint8)


def _import_rerun() -> Any:
    try:
        import rerun
    except ImportError as error:
        raise ImportError("--rerun needs the Rerun SDK: pip install 'sparsight[rerun]'") from error
    return rerun
