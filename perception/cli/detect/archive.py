"""``perceive detect --workers``: detect in an archive with several processes."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from perception.checkpoints.weights import load_weights
from perception.cli.console import OUTPUT, counted
from perception.cli.detect.crops import Crops
from perception.cli.detect.limits import LimitCount
from perception.cli.detect.pages import open_player, play_records
from perception.cli.detect.portions import BagRange, DetectionJob, Portion, Results, ScanResult
from perception.cli.records import FolderRecords, WrittenRecords
from perception.cli.scans.dates import ScanDates
from perception.cli.scans.options import WarningFilter
from perception.cli.scans.reading import ScanReader
from perception.cli.scans.scan import Scan
from perception.cli.scans.source import MergedScans, ScanPaths, frame_name
from perception.engines.local import LocalEngine, usable_cores
from perception.engines.order import run_in_order
from perception.engines.protocol import Engine, WorkerLost
from perception.errors import DataError
from perception.io.recordings.bag_scans import BagScan, BagScans
from perception.scans.watch import OUT_OF_RANGE
from sparse_core.common.console import LOG, progress_bar

ENGINES = ("local", "ray")
#: Most scans per task, and least number of tasks per worker.
_TOGETHER, _TURNS = 8, 4
#: Lost workers after which a scan is skipped.
_ATTEMPTS = 3


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--workers``, ``--engine`` and ``--address``."""
    group = parser.add_argument_group("several processes (docs/archives.md)")
    group.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="number of processes, which share the CPU cores (default with --engine: one per core, or per GPU"
        " with --device cuda)",
    )
    group.add_argument(
        "--engine",
        choices=ENGINES,
        help="run processes on this machine (local, the default) or on a Ray cluster (extra 'ray')",
    )
    group.add_argument("--address", help="address of the Ray cluster (default: this machine)")


def wants_engine(options: argparse.Namespace) -> bool:
    """Return True if the options ask for several processes; raise ``ValueError`` for conflicting options."""
    if options.address is not None and options.engine != "ray":
        raise ValueError("--address names a Ray cluster. Add --engine ray, or leave it out.")
    if options.workers is None and options.engine is None:
        return False
    if options.workers is not None and options.workers < 1:
        raise ValueError(f"--workers must be at least 1, got {options.workers}")
    alone = ("show", "rerun", "mcap", "profile", "budget_ms", "budget_joules", "budget_watts")
    for name in alone:
        if getattr(options, name):
            raise ValueError(
                f"--{name.replace('_', '-')} works in one process only. Leave out either it or --workers and"
                " --engine."
            )
    for address in options.addresses:
        if address.startswith("memory://"):
            raise ValueError(
                f"{address} exists in the memory of one process only. Leave out --workers and --engine."
            )
    return True


def detect_archive(
    options: argparse.Namespace,
    found: ScanPaths | MergedScans,
    records: FolderRecords | None,
    crops: Crops,
    read: ScanReader,
) -> int:
    """Detect with several processes; records equal those of one process, in the same order.

    Args:
        options: options of the command.
        found: the scans.
        records: open file of records; None only prints them.
        crops: collects the counts of the processes.
        read: reads scans again, for the player page.

    Returns:
        The exit status: 1 if scans were skipped.
    """
    if load_weights(options.weights).config.pillars.sweeps > 1:
        raise ValueError(
            f"{options.weights} reads several sweeps, which needs the scans in order. Leave out --workers and"
            " --engine."
        )
    player = None
    if records is not None and not options.no_pictures:
        player = open_player(options.out, options.paths, options.addresses)
    engine = _engine(options)
    archive = _Archive(found, records, engine.workers)
    warnings, range_warnings, dates = WarningFilter(), _RangeWarningFilter(), ScanDates(options)
    limits = LimitCount()
    done = failed = 0
    with contextlib.closing(engine), progress_bar() as bar:
        task = bar.add_task("detecting", total=found.total)
        for given in run_in_order(engine, archive.portions(), attempts=_ATTEMPTS, check=archive.check):
            result = given.result
            for scan_result in _scan_results(given.task, result):
                if scan_result.failure is not None:
                    raise scan_result.failure
                if scan_result.record is None:
                    failed += 1
                    LOG.error("skipped: %s", scan_result.problem)
                    continue
                range_warnings.apply(scan_result.record)
                if records is not None:
                    records.write(scan_result.record)
                dates.warn(scan_result.record)
                limits.add(scan_result.record)
                if options.json:
                    print(json.dumps(scan_result.record), flush=True)
                for warning in [] if options.json else warnings.new(tuple(scan_result.record["warnings"])):
                    LOG.warning(warning)
                done += 1
            if isinstance(result, Results):
                crops.add_counts(result.cut)
            bar.update(task, completed=done + failed + archive.known)
    limits.warn()
    if (cut := crops.summary()) is not None:
        LOG.info(cut)
    if records is not None and player is not None:
        with player:
            play_records(player, found, WrittenRecords(records.path), read)
    if not options.json:
        before = f", {archive.known} from an earlier run" if archive.known else ""
        OUTPUT.print(f"{done} of {counted(done + failed, 'frame')} in {options.out}{before}", soft_wrap=True)
        if player is not None and done + archive.known:
            OUTPUT.print(f"{player}", highlight=False, markup=False, soft_wrap=True)
    return 1 if failed else 0


def _engine(options: argparse.Namespace) -> Engine:
    job = DetectionJob(options, str(Path.cwd()))
    if options.engine == "ray":
        from perception.engines.ray import RayEngine

        return RayEngine(job, options.workers, address=options.address, cuda=options.device == "cuda")
    if options.workers is not None:
        return LocalEngine(job, options.workers)
    # Imported here, so that other commands start without it.
    import torch

    gpus = torch.cuda.device_count() if options.device == "cuda" else 0
    return LocalEngine(job, gpus or usable_cores())


def _scan_results(portion: Portion, result: object) -> list[ScanResult]:
    if isinstance(result, Results):
        return result.scans
    assert isinstance(result, WorkerLost)
    return [ScanResult(None, f"{portion.name}: {_ATTEMPTS} workers died on this scan ({result.reason})")]


class _RangeWarningFilter:
    """Filter of a warning that each detector gives once, so that a run has it once."""

    def __init__(self) -> None:
        self._seen = False

    def apply(self, record: dict[str, list[str]]) -> None:
        """Remove the warning from a record, unless it is the first."""
        if any(OUT_OF_RANGE in warning for warning in record["warnings"]):
            if self._seen:
                record["warnings"] = [text for text in record["warnings"] if OUT_OF_RANGE not in text]
            self._seen = True


class _Archive:
    """Scans in portions, without those that have records; ``known`` counts these."""

    def __init__(self, found: ScanPaths | MergedScans, records: FolderRecords | None, workers: int) -> None:
        self._found, self._records = found, records
        self._size = max(1, min(_TOGETHER, (found.total or _TOGETHER**3) // (_TURNS * workers)))
        #: Largest intensity divisor of each bag so far.
        self._shown: dict[Path, float] = {}
        self.known = 0

    def portions(self) -> Iterator[Portion]:
        """Yield all portions, in order."""
        found = self._found
        if isinstance(found, MergedScans):
            yield from self._file_portions(iter(found))
            return
        yield from self._file_portions(iter(found.files))
        for path, stem, recording in found.recordings:
            if isinstance(recording, BagScans):
                yield from self._bag_ranges(path, stem, recording)
            else:
                yield from self._file_portions(iter(ScanPaths([], [(path, stem, recording)])))

    def check(self, portion: Portion, result: object) -> Portion | None:
        """Return the portion for a repeat if earlier scans have a larger intensity range."""
        bag_range = portion.bag_range
        if bag_range is None or not isinstance(result, Results):
            return None
        shown = self._shown.get(bag_range.path, 1.0)
        if shown > bag_range.least:
            return Portion(bag_range=replace(bag_range, least=shown))
        self._shown[bag_range.path] = max(shown, result.divisor)
        return None

    def _file_portions(self, scans: Iterator[Scan]) -> Iterator[Portion]:
        new = (scan for scan in scans if not self._holds(scan.name, scan.source))
        while part := tuple(islice(new, self._size)):
            yield Portion(part)

    def _holds(self, name: str, source: str) -> bool:
        held = self._records is not None and self._records.holds(name, source)
        self.known += held
        return held

    def _bag_ranges(self, path: Path, stem: str, bag: BagScans) -> Iterator[Portion]:
        size, shown, at = len(bag), 1.0, 0
        for first, stop in self._runs(stem, bag):
            # Skipped scans still determine the intensity range of those that follow.
            shown = _shown_by(bag, at, first, shown)
            least = _shown_by(bag, first, first + 1, shown)
            for begin in range(first, stop, self._size):
                end = min(begin + self._size, stop)
                bag_range = BagRange(path, stem, begin, None if end == size else end, size)
                yield Portion(bag_range=replace(bag_range, least=max(least, self._shown.get(path, 1.0))))
            at = stop

    def _runs(self, stem: str, bag: BagScans) -> Iterator[tuple[int, int]]:
        """Yield ranges (first, stop) of scans without records."""
        first: int | None = None
        for number in range(len(bag)):
            if self._holds(frame_name(stem, number), bag.source(number)):
                if first is not None:
                    yield first, number
                first = None
            elif first is None:
                first = number
        if first is not None:
            yield first, len(bag)


def _shown_by(bag: BagScans, first: int, stop: int, least: float) -> float:
    """Return the intensity divisor after some scans; errors are left to detection."""
    with contextlib.suppress(DataError):
        for scan in bag.read_range(first, stop, least=least):
            least = scan.divisor if isinstance(scan, BagScan) else least
    return least
