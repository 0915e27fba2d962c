"""``perceive detect``: detect objects in files and recordings, and draw them."""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

from perception.cli.console import (
    OUTPUT,
    add_command,
    add_device_option,
    add_precision_option,
    add_weights_option,
)
from perception.cli.detect.archive import add_engine_options, detect_archive, wants_engine
from perception.cli.detect.budget import add_budget_options
from perception.cli.detect.crops import Crops, add_crop_options
from perception.cli.detect.frames import DetectedFrame, FrameMaker, ScanReader
from perception.cli.detect.limits import LimitCount, add_limits_option
from perception.cli.detect.pages import held_boxes, open_player
from perception.cli.detect.partitions import FOLDER as TABLE
from perception.cli.detect.partitions import write_partitions
from perception.cli.options import add_picture_options, add_range_option, add_topic_option
from perception.cli.records import NAME, FolderRecords, add_record_options
from perception.cli.scans.dates import ScanDates, add_date_options
from perception.cli.scans.options import WarningFilter, add_scan_options, transform_of
from perception.cli.scans.source import MergedScans, ScanPaths, find_scans
from perception.cli.scans.surroundings import Surroundings, add_surroundings_options
from perception.errors import DataError
from perception.io.addresses import path_or_address
from sparse_core.common.console import LOG, REMARKS, progress_bar
from sparse_core.common.libraries import load_pyarrow
from sparse_core.common.table import Table, cell

#: Runs of more scans print no tables, because printing takes longer than detection on a GPU.
_MOST_TABLES = 100


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "detect", run)
    parser.add_argument(
        "paths",
        nargs="+",
        type=path_or_address,
        help="scan files (.bin .npy .pcd .ply .csv .txt .xyz .las .laz) or folders of them; ROS bags and"
        " .mcap"
        " (extra 'ros'); .pcap of Velodyne or Ouster (extra 'packets'); addresses such as s3://bucket/scans/*.bin"
        " (extra 'archives')",
    )
    add_topic_option(parser)
    parser.add_argument(
        "--sensors",
        type=Path,
        metavar="RIG.yaml",
        help="merge several LiDARs of a folder or bag (docs/scans.md)",
    )
    parser.add_argument(
        "--out", type=Path, help="folder for detections.jsonl, pictures and player.html; optional with --json"
    )
    add_weights_option(parser)
    add_range_option(parser)
    add_limits_option(parser)
    parser.add_argument("--score", type=float, help="minimum score (default: by class)")
    add_record_options(parser)
    add_picture_options(parser)
    parser.add_argument("--show", action="store_true", help="show each frame in a window (extra 'viewers')")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON record per frame instead of tables, for recall import STORE -",
    )
    parser.add_argument(
        "--parquet",
        action="store_true",
        help=f"also write a table OUT/{TABLE}, by recording and date (extra 'parquet')",
    )
    parser.add_argument("--profile", action="store_true", help="print the time of each stage")
    add_surroundings_options(parser)
    add_date_options(parser)
    add_crop_options(parser)
    add_budget_options(parser)
    add_device_option(parser)
    add_precision_option(parser)
    add_scan_options(parser)
    add_engine_options(parser)


def run(options: argparse.Namespace) -> int:
    """Detect in every scan; unusable scans are logged and skipped, and the exit status is 1."""
    if options.out is None and (not options.json or options.overwrite or options.resume):
        raise ValueError("--out FOLDER is missing. Add it, or use --json alone to print the records.")
    options.addresses = [one for one in options.paths if isinstance(one, str)]
    options.paths = [one for one in options.paths if not isinstance(one, str)]
    if options.addresses and options.sensors is not None:
        raise ValueError(
            f"--sensors needs a local folder or bag, got {options.addresses[0]}. Download it first."
        )
    if options.parquet:
        if options.out is None:
            raise ValueError("--parquet needs --out FOLDER for the table. Add it.")
        load_pyarrow("--parquet")
    status = _detect(options)
    if options.parquet:
        rows = write_partitions(options.out / NAME, options.out / TABLE)
        LOG.info("%d frames in %s", rows, options.out / TABLE)
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
        if _any_readable(found, make.read):
            make.load()
        if records is not None:
            stack.enter_context(records.open())
        recordings, warnings = stack.enter_context(_recordings(options)), WarningFilter()
        dates, limits = ScanDates(options), LimitCount()
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
                    make.sweeps.skip(scan)
                    known += 1
                    continue
                frame = make(scan)
                # After the picture, so that --resume draws that of an interrupted frame.
                if records is not None:
                    records.write(frame.record)
                dates.warn(frame.record)
                limits.add(frame.record)
                _show(frame, options, tables=options.profile or (total or done) <= _MOST_TABLES)
                for warning in [] if options.json else warnings.new(frame.detections.warnings):
                    LOG.warning(warning)
                if player is not None:
                    player.add(frame.cloud, frame.detections, name=scan.name, ground_truth=frame.truth)
                if recordings is not None:
                    _record(recordings, frame, done)
                done += 1
            except DataError as error:
                failed += 1
                LOG.error("skipped: %s", error)
            finally:
                bar.advance(task)
    limits.warn()
    if make.budget is not None and done:
        # With --json, standard output holds records only.
        (REMARKS if options.json else OUTPUT).print(make.budget.summary())
    if (cut := crops.summary()) is not None:
        LOG.info(cut)
    if not options.json:
        before = f", {known} from an earlier run" if known else ""
        OUTPUT.print(f"{done} of {done + failed} frames in {options.out}{before}", soft_wrap=True)
        if player is not None and done + known:
            OUTPUT.print(f"{player}", highlight=False, markup=False, soft_wrap=True)
    return 1 if failed else 0


def _any_readable(found: ScanPaths | MergedScans, read: ScanReader) -> bool:
    """Return False if all scans are unreadable local files, which need no detector."""
    if isinstance(found, MergedScans) or found.recordings or any(scan.address for scan in found.files):
        return True
    for scan in found.files:
        with suppress(DataError):
            read(scan)
            return True
    return False


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
    """Show a frame in a window and print it, as the options say."""
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
    title = f"{frame.name}: {counts}, {frame.elapsed_ms:.0f} ms{frame.budget_title}"
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
