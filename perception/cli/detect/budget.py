"""``perceive detect --budget-ms`` and its like for energy: what is said of levels."""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from perception.cli.console import REMARKS
from sparse_core.table import Table, cell

if TYPE_CHECKING:
    from perception.budget import BudgetedDetector
    from perception.detector import Detector


#: Scans a second of most sensors.
_RATE_HZ = 10.0


def add_budget_options(parser: argparse.ArgumentParser) -> None:
    """``--budget-ms MS``, ``--budget-joules J``, ``--budget-watts W`` with ``--rate-hz HZ``."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--budget-ms",
        type=partial(_positive, "milliseconds"),
        metavar="MS",
        help="time a frame: the detector looks at less where it would take longer",
    )
    group.add_argument(
        "--budget-joules",
        type=partial(_positive, "joules"),
        metavar="J",
        help="energy a frame instead, by the counters of the device (RAPL of a CPU, NVML of a GPU)",
    )
    group.add_argument(
        "--budget-watts",
        type=partial(_positive, "watts"),
        metavar="W",
        help="the same as power: joules a frame times --rate-hz",
    )
    parser.add_argument(
        "--rate-hz",
        type=partial(_positive, "frames a second"),
        metavar="HZ",
        help=f"frames a second that --budget-watts is spread over (default: {_RATE_HZ:g})",
    )


def budget_of(options: argparse.Namespace, detector: Detector) -> Budget | None:
    """The budget that was asked for, if any.

    Raises:
        ValueError: a rate without watts.
        EnergyUnavailableError: a budget of energy, and no counter that can be read.
    """
    if options.rate_hz is not None and options.budget_watts is None:
        raise ValueError("--rate-hz is for --budget-watts, which is not given")
    asked_ms, joules = options.budget_ms, options.budget_joules
    if options.budget_watts is not None:
        joules = options.budget_watts / (options.rate_hz or _RATE_HZ)
    if asked_ms is None and joules is None:
        return None
    # Other commands start without what this needs.
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
    """A budgeted detector and what is to be said of it.

    Args:
        detector: with a budget of time or of energy.
        budget: its milliseconds or joules.
    """

    def __init__(self, detector: BudgetedDetector, budget: float) -> None:
        self.detector, self._budget = detector, budget
        self._unit, self._scale = ("ms", 1e3) if detector.budget_j is None else ("J", 1.0)
        self._measured = self._warned = False

    @contextmanager
    def telling(self, name: str) -> Iterator[None]:
        """Around a detection: says once what levels take, and once that none meets the budget."""
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
            _remark(f"levels measured on {name}: {levels}{of}")
        told = [entry for entry in caught if issubclass(entry.category, BudgetWarning)]
        if told and not self._warned:
            self._warned = True
            _remark(f"{told[0].message}", style="yellow")

    def record(self) -> dict[str, Any]:
        """What a frame's JSON record says of it."""
        if self.detector.budget_j is None:
            return {"level": self.detector.ran, "budget_ms": self._budget}
        used_j = round(self.detector.used_j, 6)
        return {"level": self.detector.ran, "budget_joules": self._budget, "joules": used_j}

    def told(self) -> str:
        """What the title of a frame's table says of it, after its milliseconds."""
        level = f"level {self.detector.ran!r}"
        if self.detector.budget_j is None:
            return f" of {self._budget:g}, {level}"
        return f", {self.detector.used_j:{self._digits}} J of {self._budget:g}, {level}"

    def summary(self) -> Table:
        """Levels, best first: what they took."""
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


def _remark(text: str, style: str | None = None) -> None:
    REMARKS.print(text, style=style, highlight=False, markup=False, soft_wrap=True)
