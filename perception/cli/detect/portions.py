"""Tasks of worker processes: portions of scans, and their results."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from perception.cli.detect.crops import Crops
from perception.cli.detect.frames import FrameMaker, PreparedScan
from perception.cli.scans.options import transform_of
from perception.cli.scans.scan import Scan
from perception.cli.scans.source import frame_name, scans_of
from perception.cli.scans.surroundings import Surroundings
from perception.errors import DataError
from perception.io.recordings.bag_scans import BagScan, BagScans
from perception.io.recordings.bags import open_bag
from sparse_core.common.files import write_failure
from sparse_core.common.workers import call_ahead

_WRONG_PLACES = (PermissionError, IsADirectoryError, NotADirectoryError)


@dataclass(frozen=True)
class BagRange:
    """A range of scans of a bag, which the worker reads.

    Attributes:
        path: path of the bag.
        stem: stem of its frame names.
        first: number of the first scan.
        stop: number after the last scan; None means to the end.
        size: number of scans in the bag.
        least: intensity divisor of the scans before.
    """

    path: Path
    stem: str
    first: int
    stop: int | None
    size: int
    least: float = 1.0


@dataclass(frozen=True, eq=False)
class Portion:
    """Scans of one task: files, scans already read, or a range of a bag."""

    scans: tuple[Scan, ...] = ()
    bag_range: BagRange | None = None

    @property
    def name(self) -> str:
        """Name of its first frame."""
        if self.bag_range is not None:
            return frame_name(self.bag_range.stem, self.bag_range.first)
        return self.scans[0].name

    def pieces(self) -> Sequence[Portion]:
        """Return a portion for each scan."""
        bag_range = self.bag_range
        if bag_range is None:
            return [Portion((scan,)) for scan in self.scans]
        stop = max(bag_range.size, bag_range.first + 1) if bag_range.stop is None else bag_range.stop
        singles = [
            replace(bag_range, first=number, stop=number + 1) for number in range(bag_range.first, stop)
        ]
        if bag_range.stop is None:
            singles[-1] = replace(singles[-1], stop=None)
        return [Portion(bag_range=single) for single in singles]


@dataclass(frozen=True)
class ScanResult:
    """The result of a scan: its record, or why it was skipped.

    Attributes:
        failure: a failed write, which ends the run.
    """

    record: dict[str, Any] | None
    problem: str = ""
    failure: OSError | None = None


@dataclass(frozen=True)
class Results:
    """The results of a portion.

    Attributes:
        scans: results of its scans, in order.
        divisor: intensity divisor after its last scan.
        cut: counts of crops.
    """

    scans: list[ScanResult]
    divisor: float = 1.0
    cut: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DetectionJob:
    """Detection in a worker process.

    Attributes:
        options: options of the command.
        folder: working folder, for relative paths.
    """

    options: argparse.Namespace
    folder: str

    def load(self, worker: int, threads: int) -> PortionMaker:
        """See :class:`perception.engines.protocol.Job`."""
        os.chdir(self.folder)
        torch.set_num_threads(threads)
        if self.options.device == "cuda" and torch.cuda.is_available():
            torch.cuda.set_device(worker % torch.cuda.device_count())
        return PortionMaker(self.options)


class PortionMaker:
    """Detection in portions, which loads the detector and opens each bag once."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options, self._transform = options, transform_of(options)
        self._crops = Crops(options, self._transform)
        self._make = FrameMaker(options, self._transform, Surroundings(options, self._transform), self._crops)
        self._make.load()
        self._bag: tuple[Path, ExitStack, BagScans] | None = None

    def __call__(self, portion: Portion) -> Results:
        """Detect in the scans of a portion, in order."""
        if portion.bag_range is None:
            return Results(self._detect(portion.scans), cut=self._crops.take_counts())
        bag_range, divisor = portion.bag_range, portion.bag_range.least
        found = self._open_bag(bag_range.path).read_range(bag_range.first, bag_range.stop, least=divisor)

        def attempts() -> Iterator[BagScan | DataError]:
            nonlocal divisor
            for scan in found:
                divisor = scan.divisor if isinstance(scan, BagScan) else divisor
                yield scan

        scans = scans_of(bag_range.path, bag_range.stem, attempts(), bag_range.first)
        results = self._detect(scans)
        return Results(results, divisor, self._crops.take_counts())

    def _detect(self, scans: Iterable[Scan]) -> list[ScanResult]:
        with closing(call_ahead(self._make.prepare, scans)) as ready:
            return [self._result(scan, prepared) for scan, prepared in ready]

    def _result(self, scan: Scan, prepared: Callable[[], PreparedScan]) -> ScanResult:
        try:
            return ScanResult(self._make(scan, prepared()).record)
        except DataError as error:
            return ScanResult(None, str(error))
        except OSError as error:
            if isinstance(error, _WRONG_PLACES) or write_failure(error) is not None:
                return ScanResult(None, failure=error)
            raise

    def _open_bag(self, path: Path) -> BagScans:
        if self._bag is None or self._bag[0] != path:
            if self._bag is not None:
                self._bag[1].close()
            stack = ExitStack()
            scans = BagScans(
                stack.enter_context(open_bag(path)), self._options.topic, transform=self._transform
            )
            self._bag = path, stack, scans
        return self._bag[2]
