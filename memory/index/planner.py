"""Filter first or index first: what a filtered search should do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

Method = Literal["nothing", "subset", "all", "index"]


@dataclass(frozen=True)
class Costs:
    """What the parts of a search take, for one query; the planner compares them, their unit is free.

    The defaults are nanoseconds on one core, for 256 dimensions.

    Attributes:
        gathered_row: a row at any place, fetched and compared.
        passed_row: a row compared when all are, one after the other.
        filter_row: a row that a structural filter finds.
        index_base: an index search without filter.
        index_row: a further row that an index search looks at.
        index_share: rows that it looks at in any case, per neighbour asked for.
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
#: What the parts of a single query take, in nanoseconds of one core at 256 dimensions. The share of rows
#: makes the matching ones be compared, exactly, where they are few: an index finds ten neighbours well, not
#: a thousand.
SINGLE_QUERY = Costs(gathered_row=400.0, passed_row=110.0, index_base=250_000.0, index_share=150.0)
#: Of ``SINGLE_QUERY.passed_row``, what converts a row; queries that are asked together share that.
_CONVERTED_ROW = 98.0


def exact_price(rows: int, queries: int = 1) -> float:
    """Nanoseconds a query that comparing all rows takes, where so many queries are asked together."""
    return rows * (SINGLE_QUERY.passed_row - _CONVERTED_ROW + _CONVERTED_ROW / max(1, queries))


class Plan(NamedTuple):
    """How to search.

    Attributes:
        method: ``"nothing"`` (no row matches), ``"subset"`` (find the matching rows, compare all of them),
            ``"all"`` (compare every row, leave out what does not match) or ``"index"`` (ask the index, which
            is approximate).
        reason: one sentence with the numbers behind it.
        expected_rows: rows that are compared with the query.
        answered: which index answered, and what it did; empty where nothing was asked.
    """

    method: Method
    reason: str
    expected_rows: int
    answered: str = ""


#: Of a query that compares none.
NO_VECTORS = Plan("nothing", "the query compares no vectors", 0)


@lru_cache(maxsize=256)
def plan(total: int, matches: int, k: int, *, filtered: bool = True, costs: Costs = _COSTS) -> Plan:
    """Choose the cheapest way that keeps the recall.

    An index looks at the rows nearest to the query, and only the matching share of these counts: at a small
    share it would have to look at very many, so that comparing all matching rows is cheaper, and exact.

    Args:
        total: rows of the index.
        matches: rows that the filter is estimated to leave; ``total`` without one.
        k: neighbours.
        filtered: whether there is a filter, so that its rows have to be found first.
        costs: as measured.

    Raises:
        ValueError: negative numbers or more matches than rows.
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
    # Where two cost the same, the exact one; the order of the dictionary.
    method = min(price, key=lambda name: price[name])
    return Plan(method, _reason(method, total, matches, k, price), rows[method])


def _reason(method: Method, total: int, matches: int, k: int, price: dict[Method, float]) -> str:
    """Why this method."""
    what = {
        "subset": f"comparing the {matches} matching rows of {total} exactly",
        "all": f"comparing all {total} rows exactly, of which {matches} match,",
        "index": f"asking the index for {k} of {matches} matching rows of {total}",
        "nothing": "nothing",
    }
    others = ", ".join(f"{name} {cost / price[method]:.3g}" for name, cost in price.items() if name != method)
    return f"{what[method]} is cheapest (times its cost: {others})"
