"""``perceive track SCANS``: detect and track, and store detections so that runs can resume."""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from perception.cli.console import OUTPUT, counted
from perception.cli.detect.pages import open_player
from perception.cli.options import renames_of
from perception.cli.records import FolderRecords
from perception.cli.scans.dates import ScanDates, known_time
from perception.cli.scans.options import transform_of
from perception.cli.scans.reading import ReadScan, ScanReader
from perception.cli.scans.scan import Scan
from perception.cli.scans.source import find_scans
from perception.cli.scans.surroundings import Surroundings
from perception.cli.scans.sweeps import CommandSweeps
from perception.data.nuscenes import NuScenesFrame
from perception.detector import Detector
from perception.errors import DataError
from perception.io.poses import ScanPose
from perception.rigid_motion import checked_pose
from perception.track.config import TrackerConfig
from perception.track.recording import Moment, track_recording
from perception.track.tracks import Tracks
from perception.types import Detections, PointCloud
from perception.visualise.recording import RecordingMoment
from perception.visualise.recordings import Recordings, open_recordings
from perception.visualise.trails import Trails
from perception.visualise.web import Player
from sparse_core.common.console import LOG, progress_bar

#: Detections, one record per frame, which --resume tracks again.
BOXES = "boxes.jsonl"
#: Fields of these records that tracking replaces.
_OWN = (
    *("frame", "source", "timestamp_ns", "boxes", "scores", "labels", "warnings", "embeddings"),
    *("velocities", "time_ns"),
)


class _PendingScan(NamedTuple):
    """A scan that waits for its tracks."""

    scan: Scan
    record: dict[str, Any]
    cloud: PointCloud | None
    sample: str | None


class ScanRun:
    """One run of the command.

    Args:
        options: options of the command.
        stack: closes recordings.

    Raises:
        DataError: scans, poses or earlier records are invalid.
        ValueError: options conflict.
    """

    def __init__(self, options: argparse.Namespace, stack: ExitStack) -> None:
        if not options.rate_hz > 0:
            raise ValueError(f"--rate-hz must be a positive number, got {options.rate_hz}")
        self._options, self._stack = options, stack
        self._transform = transform_of(options)
        self._read = ScanReader(options, self._transform)
        self._names = renames_of(options.rename)
        self._surroundings = Surroundings(options, self._transform, recorded_poses=True)
        found = find_scans(options, self._transform, stack)
        self.total, self._scans = found.total, iter(found)
        choice = {"overwrite": options.overwrite, "resume": options.resume}
        self._earlier = FolderRecords(options.out, **choice)
        self._boxes = FolderRecords(options.out, name=BOXES, **choice)
        if len(self._earlier) and not len(self._boxes):
            raise DataError(
                f"{self._earlier.path}: --resume needs {BOXES} in the same folder, which is missing. Add"
                " --overwrite, or name another folder with --out."
            )
        self._detector: Detector | None = None
        self._sweeps = CommandSweeps(self._placed)
        self._dates = ScanDates(options)
        self._pending: deque[_PendingScan] = deque()
        self._again: Iterator[Scan] | None = None
        self._latest: tuple[str, int] | None = None
        self.failed = 0

    def run(self, recordings: Recordings, player: Player | None) -> tuple[int, int]:
        """Track; return the number of frames and of objects."""
        options, trails = self._options, Trails()
        ids, samples, done = set[int](), list[tuple[str, Tracks]](), 0
        # All frames are tracked again: it is fast, and tracks depend on all earlier frames.
        records = FolderRecords(options.out, overwrite=True, resume=False)
        config = TrackerConfig(frame_s=1.0 / options.rate_hz)
        with progress_bar() as bar, self._boxes.open(), records.open():
            task = bar.add_task("tracking", total=self.total)
            began_ns: int | None = None
            for tracks in track_recording(self._moments(), config, mode=options.mode):
                pending = self._pending.popleft()
                scan = pending.scan
                trails.add(tracks)
                ids.update(tracks.track_id.tolist())
                drawn = not options.pictures or self._earlier.holds(scan.name, scan.source)
                if recordings or player is not None or not drawn:
                    cloud = pending.cloud if pending.cloud is not None else self._cloud(scan)
                    if not drawn:
                        _draw(options.out / f"{scan.name}.png", cloud, tracks, trails)
                    if player is not None:
                        player.add(cloud, tracks, name=scan.name, time_ns=pending.record["time_ns"])
                    _show(recordings, cloud, tracks, done, pending.record)
                own = {name: value for name, value in pending.record.items() if name not in _OWN}
                if pending.record["time_ns"] is None and "detected_ns" in own:
                    # Spaced like the tracker's frames, so that a slow machine causes no gaps in a memory.
                    began_ns = own["detected_ns"] if began_ns is None else began_ns
                    own["detected_ns"] = began_ns + round(done * config.frame_s * 1e9)
                record = {"frame": scan.name, **tracks.to_dict(), "source": scan.source} | own
                record |= self._dates.fields(scan, pending.record["time_ns"])
                records.write(record)
                self._dates.warn(record)
                if pending.sample is not None:
                    labels = [self._names.get(label, label) for label in tracks.labels]
                    samples.append((pending.sample, replace(tracks, labels=labels)))
                done += 1
                bar.advance(task)
        if samples:
            from perception.evaluate.nuscenes.judge import RESULTS_NAME
            from perception.track.nuscenes import write_scenes

            write_scenes(options.out / RESULTS_NAME, [samples])
        return done, len(ids)

    def _moments(self) -> Iterator[Moment]:
        for scan in self._scans:
            try:
                frame = self._read.frame_of(scan)
                record, cloud = self._boxes.find(scan.name, scan.source), None
                if record is None:
                    read = ReadScan(self._read.cloud(scan, frame), frame)
                    cloud, pose = self._surroundings.with_pose(scan, read)
                    record = self._detect(scan, cloud, pose)
                    self._boxes.write(record)
                else:
                    self._sweeps.skip(scan)
                # Track what the record says, so that resumed runs give equal tracks.
                found = Detections.from_dict(record)
            except DataError as error:
                self.failed += 1
                LOG.error("skipped: %s", error)
                continue
            except ValueError as error:
                raise DataError(
                    f"{self._boxes.path}: record of frame {scan.name!r} is damaged ({error}). Rerun with"
                    " --overwrite."
                ) from error
            kept = cloud if self._options.mode == "online" else None
            sample = frame.sample_token if isinstance(frame, NuScenesFrame) else None
            self._check_order(scan, record["time_ns"])
            self._pending.append(_PendingScan(scan, record, kept, sample))
            yield Moment(found, _pose_of(record), record["time_ns"])

    def _check_order(self, scan: Scan, time_ns: int | None) -> None:
        """Raise ``DataError`` if a scan is earlier than the one before it."""
        if time_ns is None:
            return
        before, self._latest = self._latest, (scan.name, time_ns)
        if before is not None and time_ns < before[1]:
            early_s, place = (before[1] - time_ns) / 1e9, self._surroundings.line_of(scan)
            raise DataError(
                f"{place}scan {scan.name!r} is {early_s:.3f} s earlier than {before[0]!r} before it. Sort the"
                " scans, or their times, by time."
            )

    def _placed(self, scan: Scan) -> tuple[PointCloud, ScanPose | None]:
        """Return a scan with its time, and its pose."""
        return self._surroundings.with_pose(scan, self._read(scan))

    def _detect(self, scan: Scan, cloud: PointCloud, pose: ScanPose | None) -> dict[str, Any]:
        """Detect, and return the record with pose and structure."""
        if self._detector is None:
            self._detector = Detector.from_pretrained(self._options.weights, device=self._options.device)
        seen = self._sweeps.merge(self._detector.config.pillars, scan, cloud, pose)
        started = time.perf_counter()
        found = self._detector(seen)
        elapsed_ms = (time.perf_counter() - started) * 1e3
        return {
            "frame": scan.name,
            **found.to_dict(),
            "source": scan.source,
            "time_ns": known_time(cloud.timestamp_ns, None if pose is None else pose.time_ns),
            "elapsed_ms": round(elapsed_ms, 2),
            **({} if pose is None else {"pose": pose.to_dict()}),
            **self._surroundings.fields(found),
            **self._surroundings.places(cloud),
        }

    def _cloud(self, scan: Scan) -> PointCloud:
        """Read a scan again for drawing; scans must be requested in order."""
        if scan.read is not None:
            if self._again is None:
                self._again = iter(find_scans(self._options, self._transform, self._stack))
            scan = next(one for one in self._again if one.name == scan.name)
        read = self._read(scan)
        return self._surroundings.timed(read.cloud, scan, read.frame)


def run_scans(options: argparse.Namespace) -> int:
    """Detect and track, and print the number of objects."""
    with ExitStack() as stack:
        run = ScanRun(options, stack)
        recordings = stack.enter_context(
            open_recordings(rerun=options.rerun, mcap=options.mcap, title="perceive track")
        )
        player = None
        if not options.no_pictures:
            player = stack.enter_context(open_player(options.out, options.paths))
        done, things = run.run(recordings, player)
    OUTPUT.print(
        f"{counted(things, 'object')} in {done} of {counted(done + run.failed, 'frame')} in {options.out}",
        soft_wrap=True,
    )
    if player is not None and done:
        OUTPUT.print(f"{player}", highlight=False, markup=False, soft_wrap=True)
    return 1 if run.failed else 0


def _pose_of(record: dict[str, Any]) -> Any:
    if "pose" not in record:
        return None
    return checked_pose([*record["pose"]["map_from_lidar"], [0, 0, 0, 1]])


def _show(
    recordings: Recordings, cloud: PointCloud, tracks: Tracks, number: int, record: dict[str, Any]
) -> None:
    if recordings:
        moment = RecordingMoment(number, record["time_ns"])
        recordings.scan(cloud, tracks, moment, map_from_lidar=tracks.pose)
        moving = int(tracks.moving.sum())
        recordings.numbers({"objects": len(tracks), "moving": moving, "points": len(cloud)}, moment)


def _draw(path: Path, cloud: PointCloud, tracks: Tracks, trails: Trails) -> None:
    from perception.visualise import draw_bev

    draw_bev(
        path, cloud, tracks, trails=trails.from_above(tracks), title=f"{path.stem}: {len(tracks)} objects"
    )
