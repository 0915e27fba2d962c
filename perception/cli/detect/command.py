"""``perceive detect``: detect objects in files and recordings, and draw them."""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack, closing, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perception.cli.console import (
    OUTPUT,
    add_command,
    add_device_option,
    add_precision_option,
    add_weights_option,
    counted,
)
from perception.cli.detect.archive import add_engine_options, detect_archive, wants_engine
from perception.cli.detect.budget import add_budget_options
from perception.cli.detect.crops import Crops, add_crop_options
from perception.cli.detect.frames import DetectedFrame, FrameMaker, PreparedScan
from perception.cli.detect.limits import LimitCount, add_limits_option
from perception.cli.detect.pages import detections_of, open_player
from perception.cli.detect.partitions import FOLDER as TABLE
from perception.cli.detect.partitions import write_partitions
from perception.cli.options import add_picture_options, add_range_option, add_topic_option, number_type
from perception.cli.records import NAME, FolderRecords, add_record_options
from perception.cli.scans.dates import ScanDates, add_date_options
from perception.cli.scans.options import WarningFilter, add_scan_options, transform_of
from perception.cli.scans.reading import ScanReader
from perception.cli.scans.scan import Scan
from perception.cli.scans.source import MergedScans, ScanPaths, find_scans
from perception.cli.scans.surroundings import Surroundings, add_surroundings_options
from perception.errors import DataError
from perception.io.addresses import path_or_address
from sparse_core.common.console import LOG, REMARKS, progress_bar
from sparse_core.common.libraries import load_pyarrow
from sparse_core.common.table import Table, cell
from sparse_core.common.workers import call_ahead

if TYPE_CHECKING:
    from perception.visualise import Player

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
    parser.add_argument(
        "--score",
        type=number_type(lambda value: 0 <= value <= 1, "a number from 0 to 1"),
        help="minimum score from 0 to 1 (default: by class)",
    )
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
        LOG.info("%s in %s", counted(rows, "frame"), options.out / TABLE)
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
        if _any_readable(found, make):
            make.load()
        if records is not None:
            stack.enter_context(records.open())
        run = _SerialRun(options, make, records, stack)
        run.detect(found)
    run.print_summary()
    return 1 if run.failed else 0


class _SerialRun:
    """Detection in one scan after the other, without worker processes; ``stack`` closes its viewers."""

    def __init__(
        self, options: argparse.Namespace, make: FrameMaker, records: FolderRecords | None, stack: ExitStack
    ) -> None:
        self._options, self._make, self._records = options, make, records
        self._recordings = stack.enter_context(_recordings(options))
        self._player: Player | None = None
        if records is not None and not options.no_pictures:
            self._player = stack.enter_context(open_player(options.out, options.paths, options.addresses))
        self._warnings, self._dates, self._limits = WarningFilter(), ScanDates(options), LimitCount()
        self._done = self._known = self.failed = 0

    def detect(self, found: ScanPaths | MergedScans) -> None:
        """Detect in all scans; unusable ones are logged and counted."""
        total = found.total
        with progress_bar() as bar, closing(call_ahead(self._prepare, found)) as scans:
            task = bar.add_task("detecting", total=total)
            for scan, prepared in scans:
                try:
                    ready = prepared()
                    if isinstance(ready, PreparedScan):
                        self._add(self._make(scan, ready), total)
                    else:
                        self._skip(scan, ready)
                except DataError as error:
                    self.failed += 1
                    LOG.error("skipped: %s", error)
                finally:
                    bar.advance(task)

    def _prepare(self, scan: Scan) -> PreparedScan | dict[str, Any]:
        """Return the record of a scan from an earlier run, or prepare the scan."""
        record = None if self._records is None else self._records.find(scan.name, scan.source)
        return self._make.prepare(scan) if record is None else record

    def _skip(self, scan: Scan, record: dict[str, Any]) -> None:
        """Add a scan to the page whose record an earlier run wrote."""
        if self._player is not None and self._records is not None:
            boxes, read = detections_of(record, self._records.path), self._make.read(scan)
            self._player.add(read.cloud, boxes, name=scan.name, ground_truth=read.truth)
        self._make.sweeps.skip(scan)
        self._known += 1

    def _add(self, frame: DetectedFrame, total: int | None) -> None:
        """Write the results of a frame."""
        # After the picture, so that --resume draws that of an interrupted frame.
        if self._records is not None:
            self._records.write(frame.record)
        self._dates.warn(frame.record)
        self._limits.add(frame.record)
        options = self._options
        _show(frame, options, tables=options.profile or (total or self._done) <= _MOST_TABLES)
        for warning in [] if options.json else self._warnings.new(frame.detections.warnings):
            LOG.warning(warning)
        if self._player is not None:
            self._player.add(frame.cloud, frame.detections, name=frame.name, ground_truth=frame.truth)
        if self._recordings is not None:
            _record(self._recordings, frame, self._done)
        self._done += 1

    def print_summary(self) -> None:
        """Print counts, levels of the budget and the page."""
        options, done, budget = self._options, self._done, self._make.budget
        self._limits.warn()
        if budget is not None and done:
            # With --json, standard output holds records only.
            (REMARKS if options.json else OUTPUT).print(budget.summary())
        if (crops := self._make.crops.summary()) is not None:
            LOG.info(crops)
        if not options.json:
            before = f", {self._known} from an earlier run" if self._known else ""
            OUTPUT.print(
                f"{done} of {counted(done + self.failed, 'frame')} in {options.out}{before}", soft_wrap=True
            )
            if self._player is not None and done + self._known:
                OUTPUT.print(f"{self._player}", highlight=False, markup=False, soft_wrap=True)


def _any_readable(found: ScanPaths | MergedScans, make: FrameMaker) -> bool:
    """Return False if all scans are unreadable local files, which need no detector."""
    if isinstance(found, MergedScans) or found.recordings or any(scan.address for scan in found.files):
        return True
    for scan in found.files:
        with suppress(DataError):
            make.read(scan)
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
    counts = f"{counted(len(frame.cloud), 'point')}, {counted(len(frame.detections), 'object')}"
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
