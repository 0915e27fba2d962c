"""How much a search looks at, and how much of the truth that was measured to find."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

#: Shares of the ten nearest that searches aim at: of hash tables alone, of two tiers, of a single query.
USUAL = 0.95
HIGH = 0.99
THOROUGH = 0.995
AIMS = (USUAL, HIGH, THOROUGH)
#: Neighbours for which an effort is measured.
MEASURED_K = 10
#: Comparing all rows may take this many times longer than an effort that misses the aim.
PATIENCE = 8.0
#: Where a share of the rows counts, more buckets or lists are read: one through the share to this power times
#: as many, but no more than so many times.
SPREADING, MOST_SPREAD = 0.3, 4.0
# Standard errors by which a recall has to exceed an aim: of a hundred that do, two or three are too low.
_ERRORS = 2.0
_VERSION = 1


class Effort(NamedTuple):
    """How much a query looks at.

    Attributes:
        probes: buckets or lists it reads.
        rerank: rows it compares exactly, for ten neighbours.
    """

    probes: int
    rerank: int

    def for_neighbours(self, k: int) -> Effort:
        """The effort for another number of neighbours: each further one needs a few more rows."""
        if not self.probes:
            return self
        return Effort(self.probes, self.rerank + 3 * max(0, k - MEASURED_K))

    def for_share(self, share: float) -> Effort:
        """Where only a share of the rows counts: its nearest are further away than those of all."""
        return self._replace(probes=round(self.probes * min(MOST_SPREAD, max(share, 1e-9) ** -SPREADING)))


#: All rows are compared.
EXACT = Effort(0, 0)


class Rung(NamedTuple):
    """What an effort finds.

    Attributes:
        effort: that was measured.
        recall: share of the ten nearest that it found, from 0 to 1.
        error: standard error of the recall.
    """

    effort: Effort
    recall: float
    error: float

    def reaches(self, aim: float) -> bool:
        """Whether the recall is at least the aim, beyond what chance explains."""
        return self.recall - _ERRORS * self.error >= aim


@dataclass(frozen=True)
class Calibration:
    """What the efforts of an index were measured to find among its own rows.

    Attributes:
        rows: of the index at that time.
        queries: rows that were asked for.
        rungs: by rising cost; none where comparing all rows costs less than the least effort.
    """

    rows: int
    queries: int
    rungs: tuple[Rung, ...]

    def least(self, aim: float) -> Rung | None:
        """The first that reaches the aim; where none does, the one that finds most, if any."""
        for rung in self.rungs:
            if rung.reaches(aim):
                return rung
        return max(self.rungs, key=lambda rung: rung.recall, default=None)

    def stale(self, rows: int) -> bool:
        """Whether an index of so many rows is another one: twice as many, or half."""
        return rows >= 2 * self.rows or 2 * rows <= self.rows

    def to_text(self) -> str:
        """For the header of a file."""
        rungs = [[*rung.effort, rung.recall, rung.error] for rung in self.rungs]
        return json.dumps({"version": _VERSION, "rows": self.rows, "queries": self.queries, "rungs": rungs})

    @classmethod
    def of_text(cls, text: str | None) -> Calibration | None:
        """What :meth:`to_text` gave; ``None`` for what is missing, of another version or damaged."""
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
    """The share of neighbours to find, or raise ``ValueError``."""
    if isinstance(aim, bool) or not 0.0 < aim <= 1.0:
        raise ValueError(f"aim must be above 0 and at most 1, got {aim}")
    return float(aim)


def chosen(
    calibration: Calibration | None,
    aim: float,
    *,
    usual: Callable[[float], Effort],
    price: Callable[[Effort], float],
    exact_price: float,
    patience: float = PATIENCE,
) -> Effort:
    """The least effort that reaches an aim, or :data:`EXACT` where comparing all rows costs less.

    Where none reaches it, :data:`EXACT` too, unless that costs more than ``patience`` times as much as
    the effort that finds most.

    Args:
        calibration: what was measured, if it was.
        aim: share of the ten nearest; 1 is :data:`EXACT`.
        usual: what to do for an aim as long as nothing was measured.
        price: of an effort.
        exact_price: of comparing all rows, in the same unit.
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
    # What is not quite reached is compared exactly, unless a query would take very much longer.
    bound = price(rung.effort) * (1.0 if rung.reaches(aim) else patience)
    return EXACT if exact_price <= bound else rung.effort


class Reached(NamedTuple):
    """What is done for an aim.

    Attributes:
        aim: share of the ten nearest that is wanted.
        probes, rerank: of the effort; 0 where all rows are compared.
        recall: measured; 1 where all are compared.
    """

    aim: float
    probes: int
    rerank: int
    recall: float

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return self._asdict()
