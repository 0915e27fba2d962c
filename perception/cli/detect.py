"""``perceive detect``: boxes in point cloud files and recordings, with pictures."""

from __future__ import annotations

import argparse
import json
import time
import warnings
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perception.cli.budget import Budget, add_budget_options, budget_of
from perception.cli.console import OUTPUT, REMARKS, add_command, add_device_option, progress_bar
from perception.cli.crops import Crops, add_crop_options
from perception.cli.pages import open_player
from perception.cli.ranges import add_range_option, range_of
from perception.cli.records import FolderRecords, add_record_options
from perception.cli.scan_options import SaidOnce, add_scan_options, columns_of, transform_of
from perception.cli.scan_source import Scan, all_scans, merged_scans
from perception.cli.surroundings import Surroundings, add_surroundings_options
from perception.data import Frame, frame_beside
from perception.detector import Detector
from perception.errors import DataError
from perception.io import load_point_cloud
from perception.io.transform import ScanTransform
from perception.types import Boxes3D, Detections, PointCloud
from sparse_core.errors import CapacityWarning
from sparse_core.table import Table, cell


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "detect", run)
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        help="files (.bin .npy .pcd .ply .csv .txt .xyz .las .laz) or folders of them; bags of ROS and .mcap"
        " files (extra 'ros'); .pcap and .pcapng of Velodyne's and Ouster's packets (extra 'packets')",
    )
    parser.add_argument("--topic", help="of point clouds, in bags that have several; a sensor's address:port")
    parser.add_argument(
        "--sensors", type=Path, metavar="RIG.yaml", help="merge the LiDARs of a folder or bag (docs/scans.md)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="folder for detections.jsonl, a PNG a frame and player.html; not needed with --json",
    )
    parser.add_argument("--weights", default="pointpillars-kitti", help="shipped name or file")
    add_range_option(parser)
    parser.add_argument("--score", type=float, help="lowest score reported (default: by class)")
    add_record_options(parser)
    parser.add_argument("--no-pictures", action="store_true", help="write detections.jsonl only")
    parser.add_argument(
        "--rerun", metavar="FILE.rrd", help="also for the Rerun viewer; 'live' opens it (extra 'viewers')"
    )
    parser.add_argument("--mcap", type=Path, metavar="FILE.mcap", help="also for Foxglove (extra 'viewers')")
    parser.add_argument("--show", action="store_true", help="open a window on each frame (extra 'viewers')")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON record a frame instead of tables: for recall import STORE -",
    )
    parser.add_argument("--profile", action="store_true", help="time the stages of each frame")
    add_surroundings_options(parser)
    add_crop_options(parser)
    add_budget_options(parser)
    add_device_option(parser)
    add_scan_options(parser)


@dataclass(frozen=True, eq=False)
class _Frame:
    title: str
    cloud: PointCloud
    detections: Detections
    beside: Frame | None
    elapsed_ms: float
    stages_ms: dict[str, float]
    least_scores: dict[str, float]
    pose: dict[str, Any]
    budget: dict[str, Any] = field(default_factory=dict)
    budget_told: str = ""

    @property
    def truth(self) -> Boxes3D | None:
        """Of the data set in which the scan lies."""
        return _truth(self.beside)


def run(options: argparse.Namespace) -> int:
    """Detect in every scan. One that cannot be used is reported and skipped; the status is then 1."""
    if options.out is None and (not options.json or options.overwrite or options.resume):
        raise ValueError("--out is missing: name a folder, or take --json alone, which prints the records")
    with ExitStack() as stack:
        transform, columns, said = transform_of(options), columns_of(options), SaidOnce()
        surroundings = Surroundings(options, transform)
        crops = Crops(options, transform)
        total: int | None
        if options.sensors is None:
            total, scans = all_scans(options, transform, stack)
        else:
            total, scans = merged_scans(options, transform, surroundings)
        records = None
        if options.out is not None:
            records = FolderRecords(options.out, overwrite=options.overwrite, resume=options.resume)
        detector = Detector.from_pretrained(options.weights, device=options.device)
        if options.range is not None:
            detector = detector.with_range(range_of(options.range))
        least_scores = detector.config.nms.report_thresholds
        if options.score is not None:
            detector = detector.with_score_threshold(options.score)
        budget = budget_of(options, detector)
        if records is not None:
            stack.enter_context(records.open())
        recordings = stack.enter_context(_recordings(options))
        player = None
        if records is not None and not options.no_pictures:
            player = stack.enter_context(open_player(options.out, options.paths))
        bar = stack.enter_context(progress_bar())
        task, done, failed, known = bar.add_task("detecting", total=total), 0, 0, 0
        for scan in scans:
            try:
                beside = frame_beside(scan.path) if scan.read is None else None
                if records is not None and (held := records.held(scan.name, scan.source)) is not None:
                    if player is not None:
                        found = _held_boxes(held, records.path)
                        cloud = _read(scan, beside, columns, transform)
                        player.add(cloud, found, name=scan.name, ground_truth=_truth(beside))
                    known += 1
                    continue
                cloud = surroundings.timed(_read(scan, beside, columns, transform), scan.name, scan.position)
                pose = surroundings.pose_of(
                    scan.name,
                    scan.position,
                    cloud.timestamp_ns,
                    beside,
                    bag=scan.bag,
                    sensor=scan.sensor,
                )
                frame = _detect(
                    detector, budget, scan, cloud, beside, least_scores, pose, profile=options.profile
                )
                _report(frame, scan.name, options, records, surroundings, crops)
                for warning in [] if options.json else said.new(frame.detections.warnings):
                    OUTPUT.print(f"warning: {warning}", style="yellow", markup=False, soft_wrap=True)
                if player is not None:
                    player.add(frame.cloud, frame.detections, name=scan.name, ground_truth=frame.truth)
                if recordings is not None:
                    _record(recordings, frame, done)
                done += 1
            except DataError as error:
                failed += 1
                REMARKS.print(f"skipped: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
            finally:
                bar.advance(task)
    if budget is not None and done:
        # A program that reads the records gets no table among them.
        (REMARKS if options.json else OUTPUT).print(budget.summary())
    if (cut := crops.summary()) is not None:
        REMARKS.print(cut, highlight=False, markup=False, soft_wrap=True)
    if not options.json:
        before = f", {known} more were there before" if known else ""
        OUTPUT.print(f"{done} of {done + failed} frames in {options.out}{before}", soft_wrap=True)
        if player is not None and done + known:
            OUTPUT.print(f"{player}", highlight=False, markup=False, soft_wrap=True)
    return 1 if failed else 0


def _truth(beside: Frame | None) -> Boxes3D | None:
    return beside.truth if beside is not None and beside.labelled else None


def _held_boxes(record: dict[str, Any], path: Path) -> Detections:
    try:
        return Detections.from_dict(record)
    except ValueError as error:
        raise DataError(f"{path}: frame {record['frame']!r}: {error}; take --overwrite") from error


def _recordings(options: argparse.Namespace) -> Any:
    if options.rerun is None and options.mcap is None:
        return nullcontext()
    from perception.visualise.recordings import open_recordings

    return open_recordings(rerun=options.rerun, mcap=options.mcap, title="perceive detect")


def _record(recordings: Any, frame: _Frame, number: int) -> None:
    from perception.visualise.recording import Moment

    moment = Moment(number, frame.cloud.timestamp_ns)
    recordings.scan(frame.cloud, frame.detections, moment, ground_truth=frame.truth)
    recordings.numbers({"objects": len(frame.detections), "points": len(frame.cloud)}, moment)


def _read(
    scan: Scan, beside: Frame | None, columns: tuple[str, ...] | None, transform: ScanTransform
) -> PointCloud:
    """The scan, as its data set places it unless options say what the file is."""
    if isinstance(scan.read, DataError):
        raise scan.read
    if scan.read is not None:
        return scan.read
    if beside is not None and columns is None and transform == ScanTransform():
        return beside.cloud
    return load_point_cloud(scan.path, columns=columns, transform=transform)


def _detect(
    detector: Detector,
    budget: Budget | None,
    scan: Scan,
    cloud: PointCloud,
    beside: Frame | None,
    least_scores: dict[str, float],
    pose: dict[str, Any],
    *,
    profile: bool,
) -> _Frame:
    used = detector if budget is None else budget.detector
    started = time.perf_counter()
    with nullcontext() if budget is None else budget.telling(scan.name), warnings.catch_warnings():
        # Shown with the frame: they are in detections.warnings too.
        warnings.simplefilter("ignore", CapacityWarning)
        detections = used(cloud)
    # Levels are measured in the first call, which is not the frame's time.
    elapsed_s = time.perf_counter() - started if budget is None else budget.detector.elapsed_s
    stages_ms = used.profile(cloud, repeats=10) if profile else {}
    title = scan.path.name if scan.read is None else scan.name
    facts, told = ({}, "") if budget is None else (budget.record(), budget.told())
    return _Frame(
        title, cloud, detections, beside, elapsed_s * 1e3, stages_ms, least_scores, pose, facts, told
    )


def _report(
    frame: _Frame,
    name: str,
    options: argparse.Namespace,
    records: FolderRecords | None,
    surroundings: Surroundings,
    crops: Crops,
) -> None:
    record = {"frame": name, **frame.detections.to_dict(), "elapsed_ms": round(frame.elapsed_ms, 2)}
    # Also where lower scores were asked for: what a memory should take over of them.
    if frame.least_scores:
        record["least_scores"] = frame.least_scores
    record |= frame.pose | surroundings.fields(frame.cloud, frame.detections) | frame.budget
    record |= crops.fields(name, frame.beside, frame.detections)
    if frame.stages_ms:
        record["stages_ms"] = {stage: round(value, 4) for stage, value in frame.stages_ms.items()}
    if records is not None and not options.no_pictures:
        from perception.visualise import draw_bev

        draw_bev(
            options.out / f"{name}.png",
            frame.cloud,
            frame.detections,
            ground_truth=frame.truth,
            title=f"{frame.title}: {len(frame.detections)} objects",
        )
    # Last, so that a run that goes on makes the pictures of a frame that was interrupted.
    if records is not None:
        records.write(record)
    if options.show:
        from perception.visualise import show_window

        show_window(frame.cloud, frame.detections, ground_truth=frame.truth, title=name)
    if options.json:
        print(json.dumps(record), flush=True)
    else:
        OUTPUT.print(_table(frame, name))
        if frame.stages_ms:
            OUTPUT.print(_stages(frame))


def _table(frame: _Frame, name: str) -> Table:
    counts = f"{len(frame.cloud)} points, {len(frame.detections)} objects"
    title = f"{name}: {counts}, {frame.elapsed_ms:.0f} ms{frame.budget_told}"
    heads = ("class", "score", "x m", "y m", "z m", "length", "width", "height", "yaw rad")
    found = frame.detections
    rows = [
        (label, *(cell(float(value), ".2f") for value in (score, *box)))
        for box, score, label in zip(found.boxes, found.scores, found.labels, strict=True)
    ]
    return Table(heads, rows, title=title)


def _stages(frame: _Frame) -> Table:
    stages = {**frame.stages_ms, "all": sum(frame.stages_ms.values())}
    rows = [(stage, cell(value, ".3f")) for stage, value in stages.items()]
    return Table(("stage", "ms"), rows, title="median of 10", ends=[len(rows) - 2])
