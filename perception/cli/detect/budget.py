"""``perceive detect --budget-ms`` and energy budgets: options, log messages and records."""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from sparse_core.common.console import LOG
from sparse_core.common.table import Table, cell

if TYPE_CHECKING:
    from perception.budget import BudgetedDetector
    from perception.detector import Detector


#: Scan rate of most sensors.
_RATE_HZ = 10.0


def add_budget_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--budget-ms``, ``--budget-joules``, ``--budget-watts`` and ``--rate-hz``."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--budget-ms",
        type=partial(_positive, "milliseconds"),
        metavar="MS",
        help="time per frame; the detector processes less of a scan to meet it",
    )
    group.add_argument(
        "--budget-joules",
        type=partial(_positive, "joules"),
        metavar="J",
        help="energy per frame, measured by RAPL on a CPU and NVML on a GPU",
    )
    group.add_argument(
        "--budget-watts",
        type=partial(_positive, "watts"),
        metavar="W",
        help="power: joules per frame times --rate-hz",
    )
    parser.add_argument(
        "--rate-hz",
        type=partial(_positive, "frames per second"),
        metavar="HZ",
        help=f"frames per second for --budget-watts (default: {_RATE_HZ:g})",
    )


def budget_of(options: argparse.Namespace, detector: Detector) -> Budget | None:
    """Return the budget of the options, or None.

    Raises:
        ValueError: a rate without watts.
        EnergyUnavailableError: the energy counter of the device is not readable.
    """
    if options.rate_hz is not None and options.budget_watts is None:
        raise ValueError("--rate-hz needs --budget-watts W. Add it, or leave --rate-hz out.")
    asked_ms, joules = options.budget_ms, options.budget_joules
    if options.budget_watts is not None:
        joules = options.budget_watts / (options.rate_hz or _RATE_HZ)
    if asked_ms is None and joules is None:
        return None
    # Imported here, so that runs without a budget start faster.
    from perception.budget import BudgetedDetector

    if joules is None:
        return Budget(BudgetedDetector(detector, asked_ms / 1e3), asked_ms)
    return Budget(BudgetedDetector(detector, budget_j=joules), joules)


def _positive(unit: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"must be a positive number of {unit}, got {text!r}")
    return value


class Budget:
    """A budgeted detector and its reports.

    Args:
        detector: detector with a budget of time or energy.
        budget: its milliseconds or joules.
    """

    def __init__(self, detector: BudgetedDetector, budget: float) -> None:
        self.detector, self._budget = detector, budget
        self._unit, self._scale = ("ms", 1e3) if detector.budget_j is None else ("J", 1.0)
        self._measured = self._warned = False

    @contextmanager
    def log_levels(self, name: str) -> Iterator[None]:
        """Wrap a detection: log once what the levels take, and once that none meets the budget."""
        from sparse_core.dynamic import BudgetWarning

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", BudgetWarning)
            yield
        for entry in caught:
            if not issubclass(entry.category, BudgetWarning):
                warnings.warn_explicit(entry.message, entry.category, entry.filename, entry.lineno)
        if self.detector.seconds and not self._measured:
            self._measured = True
            measured, meter = self.detector.joules or self.detector.seconds, self.detector.meter
            levels = ", ".join(
                f"{level} {self._scale * taken:{self._digits}} {self._unit}"
                for level, taken in measured.items()
            )
            of = "" if meter is None else f", energy of {', '.join(meter.sources)}"
            LOG.info("levels measured on %s: %s%s", name, levels, of)
        warned = [entry for entry in caught if issubclass(entry.category, BudgetWarning)]
        if warned and not self._warned:
            self._warned = True
            LOG.warning("%s", warned[0].message)

    def record(self) -> dict[str, Any]:
        """Return the fields of a frame's record."""
        if self.detector.budget_j is None:
            return {"level": self.detector.ran, "budget_ms": self._budget}
        used_j = round(self.detector.used_j, 6)
        return {"level": self.detector.ran, "budget_joules": self._budget, "joules": used_j}

    def title(self) -> str:
        """Return the part of a table's title that follows the milliseconds."""
        level = f"level {self.detector.ran!r}"
        if self.detector.budget_j is None:
            return f" of {self._budget:g}, {level}"
        return f", {self.detector.used_j:{self._digits}} J of {self._budget:g}, {level}"

    def summary(self) -> Table:
        """Return a table of the levels, best first, with mean and measured cost."""
        joules = self.detector.budget_j is not None
        rows = [
            (
                use.level.name,
                use.frames,
                *(
                    cell(None if taken is None else self._scale * taken, self._digits)
                    for taken in ((use.mean_j, use.measured_j) if joules else (use.mean_s, use.measured_s))
                ),
            )
            for use in self.detector.uses()
        ]
        heads = ("level", "frames", f"mean {self._unit}", f"measured {self._unit}")
        return Table(heads, rows, title=f"levels within {self._budget:g} {self._unit}")

    @property
    def _digits(self) -> str:
        return ".1f" if self._unit == "ms" else ".3g"
