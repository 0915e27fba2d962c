"""``perceive detect --budget-ms``: what is said of levels."""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from perception.cli.console import REMARKS
from sparse_core.table import Table, cell

if TYPE_CHECKING:
    from perception.detector import Detector


def add_budget_option(parser: argparse.ArgumentParser) -> None:
    """``--budget-ms MS``."""
    parser.add_argument(
        "--budget-ms",
        type=_milliseconds,
        metavar="MS",
        help="time a frame: the detector looks at less where it would take longer",
    )


def _milliseconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"must be a positive number of milliseconds, got {text!r}")
    return value


class Budget:
    """A budgeted detector and what is to be said of it.

    Args:
        detector: the whole one.
        budget_ms: milliseconds a frame.
    """

    def __init__(self, detector: Detector, budget_ms: float) -> None:
        # Other commands start without what this needs.
        from perception.budget import BudgetedDetector

        self.detector = BudgetedDetector(detector, budget_ms / 1e3)
        self.budget_ms = budget_ms
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
            levels = ", ".join(
                f"{level} {1e3 * taken:.1f} ms" for level, taken in self.detector.seconds.items()
            )
            _remark(f"levels measured on {name}: {levels}")
        told = [entry for entry in caught if issubclass(entry.category, BudgetWarning)]
        if told and not self._warned:
            self._warned = True
            _remark(f"{told[0].message}", style="yellow")

    def record(self) -> dict[str, Any]:
        """What a frame's JSON record says of it."""
        return {"level": self.detector.ran, "budget_ms": self.budget_ms}

    def summary(self) -> Table:
        """Levels, best first: what they took."""
        rows = [
            (
                use.level.name,
                use.frames,
                *(
                    cell(None if taken is None else 1e3 * taken, ".1f")
                    for taken in (use.mean_s, use.measured_s)
                ),
            )
            for use in self.detector.uses()
        ]
        heads = ("level", "frames", "mean ms", "measured ms")
        return Table(heads, rows, title=f"levels within {self.budget_ms:g} ms")


def _remark(text: str, style: str | None = None) -> None:
    REMARKS.print(text, style=style, highlight=False, markup=False, soft_wrap=True)
