"""Effort of a search, and the measured recall of efforts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

#: Aims as a share of the ten nearest: for hash tables alone, for two tiers, for a single query.
USUAL = 0.95
HIGH = 0.99
THOROUGH = 0.995
AIMS = (USUAL, HIGH, THOROUGH)
#: Number of neighbours at which efforts are measured.
MEASURED_K = 10
#: Comparing all rows may cost this many times more than an effort that misses the aim.
PATIENCE = 8.0
#: If only a share of the rows counts, the probes are divided by the share to this power, up to a maximum
#: factor.
SPREADING, MOST_SPREAD = 0.3, 4.0
# Standard errors by which a recall must exceed an aim; about 2 % of those that do are still too low.
_ERRORS = 2.0
_VERSION = 1


class Effort(NamedTuple):
    """Amount of work per query.

    Attributes:
        probes: buckets or lists to read.
        rerank: rows to compare exactly, for ten neighbours.
    """

    probes: int
    rerank: int

    def for_neighbours(self, k: int) -> Effort:
        """Return the effort for k neighbours; each further one needs a few more rows."""
        if not self.probes:
            return self
        return Effort(self.probes, self.rerank + 3 * max(0, k - MEASURED_K))

    def for_share(self, share: float) -> Effort:
        """Return the effort if only a share of the rows counts, whose nearest are farther away."""
        return self._replace(probes=round(self.probes * min(MOST_SPREAD, max(share, 1e-9) ** -SPREADING)))


#: Effort that compares all rows.
EXACT = Effort(0, 0)


class Rung(NamedTuple):
    """Measured recall of an effort.

    Attributes:
        recall: share of the ten nearest that it found, from 0 to 1.
        error: standard error of the recall.
    """

    effort: Effort
    recall: float
    error: float

    def reaches(self, aim: float) -> bool:
        """Return True if the recall is at least the aim, beyond chance."""
        return self.recall - _ERRORS * self.error >= aim


@dataclass(frozen=True)
class IndexCalibration:
    """Measured recall of an index's efforts on its own rows.

    Attributes:
        rows: number of rows when it was measured.
        queries: number of sampled rows.
        rungs: efforts by rising cost; none if comparing all rows costs less than the smallest effort.
    """

    rows: int
    queries: int
    rungs: tuple[Rung, ...]

    def least(self, aim: float) -> Rung | None:
        """Return the cheapest effort that reaches the aim, or else the one with the highest recall."""
        for rung in self.rungs:
            if rung.reaches(aim):
                return rung
        return max(self.rungs, key=lambda rung: rung.recall, default=None)

    def stale(self, rows: int) -> bool:
        """Return True if the number of rows has doubled or halved since."""
        return rows >= 2 * self.rows or 2 * rows <= self.rows

    def to_text(self) -> str:
        """Return the text for a file's header."""
        rungs = [[*rung.effort, rung.recall, rung.error] for rung in self.rungs]
        return json.dumps({"version": _VERSION, "rows": self.rows, "queries": self.queries, "rungs": rungs})

    @classmethod
    def of_text(cls, text: str | None) -> IndexCalibration | None:
        """Read the text of :meth:`to_text`; ``None`` if it is missing, damaged or of another version."""
        try:
            found = json.loads(text or "null")
            if found["version"] != _VERSION:
                return None
            rungs = tuple(
                Rung(Effort(int(probes), int(rerank)), float(recall), float(error))
                for probes, rerank, recall, error in found["rungs"]
            )
            made = cls(int(found["rows"]), int(found["queries"]), rungs)
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        right = all(
            min(rung.effort) >= 1 and 0.0 <= rung.recall <= 1.0 and math.isfinite(rung.error)
            for rung in made.rungs
        )
        return made if right and made.rows >= 0 else None


def check_aim(aim: float) -> float:
    """Return the aim, or raise ``ValueError``."""
    if isinstance(aim, bool) or not 0.0 < aim <= 1.0:
        raise ValueError(f"aim must be above 0 and at most 1, got {aim}")
    return float(aim)


def choose_effort(
    calibration: IndexCalibration | None,
    aim: float,
    *,
    usual: Callable[[float], Effort],
    price: Callable[[Effort], float],
    exact_price: float,
    patience: float = PATIENCE,
) -> Effort:
    """Return the cheapest effort that reaches an aim, or :data:`EXACT` if comparing all rows costs less.

    If no effort reaches it, return :data:`EXACT`, unless that costs more than ``patience`` times the effort
    with the highest recall.

    Args:
        calibration: the measurement, if any.
        aim: share of the ten nearest; 1 means :data:`EXACT`.
        usual: effort for an aim without a measurement.
        price: cost of an effort.
        exact_price: cost of comparing all rows, in the same unit.
        patience: see above.

    Raises:
        ValueError: the aim is not above 0 and at most 1.
    """
    if check_aim(aim) == 1.0:
        return EXACT
    if calibration is None:
        return usual(aim)
    rung = calibration.least(aim)
    if rung is None:
        return EXACT
    # Compare all rows if the aim is missed, unless a query would take very much longer.
    bound = price(rung.effort) * (1.0 if rung.reaches(aim) else patience)
    return EXACT if exact_price <= bound else rung.effort


class AimEffort(NamedTuple):
    """Effort for an aim.

    Attributes:
        aim: share of the ten nearest to find.
        probes, rerank: its effort; 0 if all rows are compared.
        recall: measured recall; 1 if all rows are compared.
    """

    aim: float
    probes: int
    rerank: int
    recall: float

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return self._asdict()
