"""``perceive detect``: boxes in point cloud files and recordings, with pictures."""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from perception.cli.console import (
    OUTPUT,
    REMARKS,
    add_command,
    add_device_option,
    add_precision_option,
    progress_bar,
)
from perception.cli.detect.archive import add_engine_options, detect_archive, wants_engine
from perception.cli.detect.budget import add_budget_options
from perception.cli.detect.crops import Crops, add_crop_options
from perception.cli.detect.frames import DetectedFrame, FrameMaker, ScanReader
from perception.cli.detect.pages import held_boxes, open_player
from perception.cli.detect.partitions import FOLDER as TABLE
from perception.cli.detect.partitions import load_pyarrow, write_partitions
from perception.cli.options import add_range_option
from perception.cli.records import NAME, FolderRecords, add_record_options
from perception.cli.scans.dates import ScanDates, add_date_options
from perception.cli.scans.options import WarningFilter, add_scan_options, transform_of
from perception.cli.scans.source import MergedScans, ScanPaths, find_scans
from perception.cli.scans.surroundings import Surroundings, add_surroundings_options
from perception.errors import DataError
from perception.io.addresses import path_or_address
from sparse_core.common.table import Table, cell

#: Of more scans nobody reads a table of each, which takes longer to print than a GPU to detect.
_MOST_TABLES = 100


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "detect", run)
    parser.add_argument(
        "paths",
        nargs="+",
        type=path_or_address,
        help="files (.bin .npy .pcd .ply .csv .txt .xyz .las .laz) or folders of them; bags of ROS and .mcap"
        " files (extra 'ros'); .pcap and .pcapng of Velodyne's and Ouster's packets (extra 'packets');"
        " addresses of files, folders and patterns, s3://bucket/scans/*.bin (extra 'archives')",
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
    parser.add_argument(
        "--parquet",
        action="store_true",
        help=f"also as a table, OUT/{TABLE}, in parts by recording and date (extra 'parquet')",
    )
    parser.add_argument("--profile", action="store_true", help="time the stages of each frame")
    add_surroundings_options(parser)
    add_date_options(parser)
    add_crop_options(parser)
    add_budget_options(parser)
    add_device_option(parser)
    add_precision_option(parser)
    add_scan_options(parser)
    add_engine_options(parser)


def run(options: argparse.Namespace) -> int:
    """Detect in every scan. One that cannot be used is reported and skipped; the status is then 1."""
    if options.out is None and (not options.json or options.overwrite or options.resume):
        raise ValueError("--out is missing: name a folder, or take --json alone, which prints the records")
    options.addresses = [one for one in options.paths if isinstance(one, str)]
    options.paths = [one for one in options.paths if not isinstance(one, str)]
    if options.addresses and options.sensors is not None:
        raise ValueError(f"--sensors is for folders and bags of this machine, got {options.addresses[0]}")
    if options.parquet:
        if options.out is None:
            raise ValueError("--parquet needs --out: the folder of the table")
        load_pyarrow()
    status = _detect(options)
    if options.parquet:
        rows = write_partitions(options.out / NAME, options.out / TABLE)
        REMARKS.print(f"{rows} frames in {options.out / TABLE}", highlight=False, soft_wrap=True)
    return status


def _detect(options: argparse.Namespace) -> int:
    with ExitStack() as stack:
        transform = transform_of(options)
        surroundings = Surroundings(options, transform)
        crops = Crops(options, transform)
        if options.sensors is None:
            found: ScanPaths | MergedScans = find_scans(options, transform, stack)
        else:
            found = MergedScans(options, transform, surroundings)
        records = None
        if options.out is not None:
            records = FolderRecords(options.out, overwrite=options.overwrite, resume=options.resume)
        if wants_engine(options):
            if records is not None:
                stack.enter_context(records.open())
            return detect_archive(options, found, records, crops, ScanReader(options, transform))
        make = FrameMaker(options, transform, surroundings, crops)
        if records is not None:
            stack.enter_context(records.open())
        recordings, said = stack.enter_context(_recordings(options)), WarningFilter()
        dates = ScanDates(options)
        player = None
        if records is not None and not options.no_pictures:
            player = stack.enter_context(open_player(options.out, options.paths, options.addresses))
        bar = stack.enter_context(progress_bar())
        total = found.total
        task, done, failed, known = bar.add_task("detecting", total=total), 0, 0, 0
        for scan in found:
            try:
                if records is not None and (held := records.held(scan.name, scan.source)) is not None:
                    if player is not None:
                        boxes = held_boxes(held, records.path)
                        seen = make.read(scan)
                        player.add(seen.cloud, boxes, name=scan.name, ground_truth=seen.truth)
                    known += 1
                    continue
                frame = make(scan)
                # Behind the picture, so that a run that goes on makes that of a frame that was interrupted.
                if records is not None:
                    records.write(frame.record)
                dates.tell(frame.record)
                _show(frame, options, tables=options.profile or (total or done) <= _MOST_TABLES)
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
    if make.budget is not None and done:
        # A program that reads the records gets no table among them.
        (REMARKS if options.json else OUTPUT).print(make.budget.summary())
    if (cut := crops.summary()) is not None:
        REMARKS.print(cut, highlight=False, markup=False, soft_wrap=True)
    if not options.json:
        before = f", {known} more were there before" if known else ""
        OUTPUT.print(f"{done} of {done + failed} frames in {options.out}{before}", soft_wrap=True)
        if player is not None and done + known:
            OUTPUT.print(f"{player}", highlight=False, markup=False, soft_wrap=True)
    return 1 if failed else 0


def _recordings(options: argparse.Namespace) -> Any:
    if options.rerun is None and options.mcap is None:
        return nullcontext()
    from perception.visualise.recordings import open_recordings

    return open_recordings(rerun=options.rerun, mcap=options.mcap, title="perceive detect")


def _record(recordings: Any, frame: DetectedFrame, number: int) -> None:
    from perception.visualise.recording import RecordingMoment

    moment = RecordingMoment(number, frame.cloud.timestamp_ns)
    recordings.scan(frame.cloud, frame.detections, moment, ground_truth=frame.truth)
    recordings.numbers({"objects": len(frame.detections), "points": len(frame.cloud)}, moment)


def _show(frame: DetectedFrame, options: argparse.Namespace, *, tables: bool) -> None:
    """In a window and on the terminal, as far as that was asked for."""
    if options.show:
        from perception.visualise import show_window

        show_window(frame.cloud, frame.detections, ground_truth=frame.truth, title=frame.name)
    if options.json:
        print(json.dumps(frame.record), flush=True)
    elif tables:
        OUTPUT.print(_table(frame))
        if frame.stages_ms:
            OUTPUT.print(_stages(frame))


def _table(frame: DetectedFrame) -> Table:
    counts = f"{len(frame.cloud)} points, {len(frame.detections)} objects"
    title = f"{frame.name}: {counts}, {frame.elapsed_ms:.0f} ms{frame.budget_told}"
    heads = ("class", "score", "x m", "y m", "z m", "length", "width", "height", "yaw rad")
    found = frame.detections
    rows = [
        (label, *(cell(float(value), ".2f") for value in (score, *box)))
        for box, score, label in zip(found.boxes, found.scores, found.labels, strict=True)
    ]
    return Table(heads, rows, title=title)


def _stages(frame: DetectedFrame) -> Table:
    stages = {**frame.stages_ms, "all": sum(frame.stages_ms.values())}
    rows = [(stage, cell(value, ".3f")) for stage, value in stages.items()]
    return Table(("stage", "ms"), rows, title="median of 10", ends=[len(rows) - 2])
