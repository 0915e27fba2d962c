"""Plan of a filtered search: filter first, or index first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

Method = Literal["nothing", "subset", "all", "index"]


@dataclass(frozen=True)
class Costs:
    """Costs of the parts of a search for one query, in any one unit.

    The defaults are nanoseconds on one core, for 256 dimensions.

    Attributes:
        gathered_row: fetch and compare a row at any position.
        passed_row: compare a row in a pass over all rows.
        filter_row: find a row by a structural filter.
        index_base: an index search without a filter.
        index_row: one further row that an index search reads.
        index_share: rows that it reads in any case, per requested neighbour.
    """

    gathered_row: float = 120.0
    passed_row: float = 15.0
    filter_row: float = 30.0
    index_base: float = 400_000.0
    index_row: float = 200.0
    index_share: float = 20.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a cost that is not positive."""
        for name, value in vars(self).items():
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be finite and positive, got {value}")


_COSTS = Costs()
#: Measured costs of a single query, in nanoseconds on one core at 256 dimensions. ``index_share`` is high, so
#: that few matching rows are compared exactly: an index finds ten neighbours well, not a thousand.
SINGLE_QUERY = Costs(gathered_row=400.0, passed_row=110.0, index_base=250_000.0, index_share=150.0)
#: Part of ``SINGLE_QUERY.passed_row`` that converts a row; queries asked together share it.
_CONVERTED_ROW = 98.0


def exact_price(rows: int, queries: int = 1) -> float:
    """Return nanoseconds per query for comparing all rows, if so many queries are asked together."""
    return rows * (SINGLE_QUERY.passed_row - _CONVERTED_ROW + _CONVERTED_ROW / max(1, queries))


class Plan(NamedTuple):
    """Method of a search.

    Attributes:
        method: ``"nothing"`` (no row matches), ``"subset"`` (find the matching rows, compare all of them),
            ``"all"`` (compare every row, drop the others) or ``"index"`` (ask the index, which is
            approximate).
        reason: one sentence with the numbers behind the choice.
        expected_rows: rows compared with the query.
        answered: the index that answered and what it did; empty without a search.
    """

    method: Method
    reason: str
    expected_rows: int
    answered: str = ""


#: Plan of a query without vectors.
NO_VECTORS = Plan("nothing", "the query compares no vectors", 0)


@lru_cache(maxsize=256)
def plan(total: int, matches: int, k: int, *, filtered: bool = True, costs: Costs = _COSTS) -> Plan:
    """Choose the cheapest method that keeps the recall.

    An index reads the rows nearest to the query, and only the matching share of them counts. At a small
    share, comparing all matching rows is cheaper, and exact.

    Args:
        total: rows of the index.
        matches: estimated rows that pass the filter; ``total`` without a filter.
        k: neighbours.
        filtered: True if a filter has to find the rows first.
        costs: measured costs.

    Raises:
        ValueError: a negative number, or more matches than rows.
    """
    if total < 0 or not 0 <= matches <= total:
        raise ValueError(f"matches must be from 0 to total, got {matches} of {total}")
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if matches == 0:
        return Plan("nothing", f"none of {total} rows matches", 0)
    share = matches / total
    seen = min(total, math.ceil(k * costs.index_share / share))
    finding = costs.filter_row * matches if filtered else 0.0
    price: dict[Method, float] = {
        "subset": finding + costs.gathered_row * matches,
        "all": finding + costs.passed_row * total,
        "index": finding + costs.index_base + costs.index_row * seen,
    }
    rows: dict[Method, int] = {"subset": matches, "all": total, "index": seen}
    # Equal costs: the dictionary's order prefers the exact methods.
    method = min(price, key=lambda name: price[name])
    return Plan(method, _reason(method, total, matches, k, price), rows[method])


def _reason(method: Method, total: int, matches: int, k: int, price: dict[Method, float]) -> str:
    """Explain the choice."""
    what = {
        "subset": f"comparing the {matches} matching of {total} rows exactly",
        "all": f"comparing all {total} rows exactly, {matches} of which match,",
        "index": f"asking the index for {k} of the {matches} matching of {total} rows",
        "nothing": "nothing",
    }
    others = ", ".join(f"{name} {cost / price[method]:.3g}" for name, cost in price.items() if name != method)
    return f"{what[method]} is cheapest (relative costs: {others})"
