"""``perceive track``: things followed through scans, or through another detector's boxes."""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from perception.cli.console import OUTPUT, REMARKS, add_command, add_device_option, progress_bar
from perception.cli.records import FolderRecords, add_record_options
from perception.cli.scan_options import add_scan_options, columns_of, transform_of
from perception.cli.surroundings import Surroundings, add_surroundings_options
from perception.data import Frame, frame_beside
from perception.errors import DataError
from perception.io import find_point_clouds, load_point_cloud
from perception.io.transform import ScanTransform
from perception.track.config import TrackerConfig
from perception.track.poses import inverse
from perception.track.recording import MODES, Moment, track_recording
from perception.track.tracks import Tracks
from perception.types import FloatArray, PointCloud

#: Frames that trails in pictures go back.
_TRAIL = 30


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "track", run)
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="SCANS",
        help="files (.bin .npy .pcd .ply) or folders of them, in order",
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FOLDER",
        help="follow boxes in place of scans: seqmap.txt, detections*/CLASS/SSSS.txt, calib/SSSS.txt and, if"
        " known, poses/SSSS.txt; writes a KITTI tracking file for each sequence. Or a nuScenes detection"
        " result file (.json) with --data: writes one of the tracking task, results.json",
    )
    parser.add_argument("--data", type=Path, help="folder of nuScenes that --results FILE.json is of")
    parser.add_argument("--split", default="val", help="with --data: its scenes, or 'all' (default: val)")
    parser.add_argument(
        "--missing",
        choices=("error", "empty", "skip"),
        default="error",
        help="with --data: samples without results are an error, hold nothing, or are left out",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for what is written")
    parser.add_argument(
        "--mode",
        choices=MODES,
        default="online",
        help="what a frame may know: what came before it, the next two seconds, or all (default: online)",
    )
    parser.add_argument("--rate-hz", type=float, default=10.0, help="of frames without times (default: 10)")
    parser.add_argument("--weights", default="pointpillars-kitti", help="shipped name or file")
    parser.add_argument("--no-pictures", action="store_true", help="write detections.jsonl only")
    add_record_options(parser)
    add_surroundings_options(parser)
    add_device_option(parser)
    add_scan_options(parser)


def run(options: argparse.Namespace) -> int:
    """Track; print how many things there were."""
    if (options.results is None) == (not options.paths):
        raise ValueError("name scans, or --results with a folder of boxes: one of the two")
    if (options.data is not None) != (options.results is not None and options.results.suffix == ".json"):
        raise ValueError("--data is the nuScenes folder of --results FILE.json: name both")
    if options.results is not None:
        lengths, what = _run_results(options)
        frames = sum(lengths.values())
        OUTPUT.print(f"{frames} frames of {len(lengths)} {what} in {options.out}", soft_wrap=True)
        return 0
    return _run_scans(options)


def _run_results(options: argparse.Namespace) -> tuple[dict[str, int], str]:
    """Frames by sequence or scene, and what they are called."""
    if options.data is None:
        from perception.track.folders import track_folder

        return track_folder(options.results, options.out, mode=options.mode), "sequences"
    from perception.data import open_data_set
    from perception.track.nuscenes import track_results

    split = None if options.split == "all" else options.split
    data_set = open_data_set(options.data, split, having="scan or labels")
    return track_results(
        data_set, options.results, options.out, mode=options.mode, missing_results=options.missing
    ), "scenes"


class _Scan(NamedTuple):
    """A scan whose boxes are with the tracker: its tracks follow, at once or later."""

    name: str
    path: Path
    cloud: PointCloud | None
    pose: dict[str, Any]
    elapsed_ms: float


def _run_scans(options: argparse.Namespace) -> int:
    from perception.detector import Detector

    if options.resume:
        raise ValueError("--resume: tracks need all frames before; take --overwrite")
    if not options.rate_hz > 0:
        raise ValueError(f"--rate-hz must be above 0, got {options.rate_hz}")
    columns, transform = columns_of(options), transform_of(options)
    surroundings = Surroundings(options, transform)
    paths = find_point_clouds(options.paths)
    records = FolderRecords(options.out, overwrite=options.overwrite, resume=False)
    detector = Detector.from_pretrained(options.weights, device=options.device)
    waiting: deque[_Scan] = deque()
    failed: list[DataError] = []

    def read(path: Path, beside: Frame | None) -> PointCloud:
        if beside is not None and columns is None and transform == ScanTransform():
            return beside.cloud
        return load_point_cloud(path, columns=columns, transform=transform)

    def moments() -> Iterator[Moment]:
        for position, path in enumerate(paths):
            try:
                beside = frame_beside(path)
                cloud = surroundings.timed(read(path, beside), path.stem, position)
                pose = surroundings.scan_pose(path.stem, position, cloud.timestamp_ns, beside)
            except DataError as error:
                failed.append(error)
                REMARKS.print(f"skipped: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
                continue
            started = time.perf_counter()
            found = detector(cloud)
            elapsed_ms = (time.perf_counter() - started) * 1e3
            kept = cloud if options.mode == "online" else None
            waiting.append(
                _Scan(path.stem, path, kept, {} if pose is None else {"pose": pose.to_dict()}, elapsed_ms)
            )
            times = (None if one is None else one.time_ns for one in (pose, beside))
            time_ns = next((one for one in times if one is not None), cloud.timestamp_ns)
            yield Moment(found, None if pose is None else pose.map_from_lidar, time_ns)

    trails, ids = _Trails(), set[int]()
    with progress_bar() as bar, records.open():
        task = bar.add_task("tracking", total=len(paths))
        config = TrackerConfig(frame_s=1.0 / options.rate_hz)
        for tracks in track_recording(moments(), config, mode=options.mode):
            scan = waiting.popleft()
            cloud = read(scan.path, frame_beside(scan.path)) if scan.cloud is None else scan.cloud
            trails.add(tracks)
            ids.update(tracks.track_id.tolist())
            if not options.no_pictures:
                _draw(options.out / f"{scan.name}.png", cloud, tracks, trails)
            record = {"frame": scan.name, **tracks.to_dict(), "elapsed_ms": round(scan.elapsed_ms, 2)}
            records.write(record | scan.pose | surroundings.fields(cloud, tracks))
            bar.advance(task)
    OUTPUT.print(
        f"{len(ids)} things in {len(paths) - len(failed)} of {len(paths)} frames in {options.out}",
        soft_wrap=True,
    )
    return 1 if failed else 0


class _Trails:
    """Where things were in the last frames, in the map."""

    def __init__(self) -> None:
        self._frames: deque[dict[int, FloatArray]] = deque(maxlen=_TRAIL)

    def add(self, tracks: Tracks) -> None:
        """Those of a frame."""
        self._frames.append(dict(zip(tracks.track_id.tolist(), tracks.map_boxes[:, :3], strict=True)))

    def of(self, tracks: Tracks) -> list[FloatArray]:
        """(n, 2) places of each track until now, oldest first, in the frame of its sensor."""
        back = inverse(tracks.pose)
        found = []
        for track in tracks.track_id.tolist():
            places = np.array([frame[track] for frame in self._frames if track in frame], np.float64).reshape(
                -1, 3
            )
            found.append((places @ back[:3, :3].T + back[:3, 3])[:, :2].astype(np.float32))
        return found


def _draw(path: Path, cloud: PointCloud, tracks: Tracks, trails: _Trails) -> None:
    from perception.visualise import draw_bev

    draw_bev(path, cloud, tracks, trails=trails.of(tracks), title=f"{path.stem}: {len(tracks)} things")
