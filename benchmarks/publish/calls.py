"""Published blocks of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.publish.text import Column, Table, Values, milliseconds

_MET = {None: "", True: "yes", False: "no"}


def _value(row: Values) -> str:
    return f"{row['value']:,.0f}/s" if row["unit"] == "a second" else f"{milliseconds(row['value'])} ms"


def _aim(row: Values) -> str | None:
    if row.get("aim_slower") is not None:
        return f"{row['aim_slower']} times as long"
    if row.get("aim_times") is not None:
        return f"{row['aim_times']} times"
    if row["aim"] is None:
        return None
    rate = f"{row['aim']:,.0f}/s" if row["unit"] == "a second" else f"{milliseconds(row['aim'])} ms"
    return f"{rate} (p99)" if row.get("aim_of") == "p99" else rate


def _beside(row: Values) -> str | None:
    found = []
    if "other" in row:
        other = row["other"].replace("dense twin", "dense baseline")
        found = [f"{row['times']:.2f} times as long: {other}"]
    found += [f"{row['slower']} times as long as alone"] if "slower" in row else []
    return "; ".join(found) or None


def _columns() -> list[Column]:
    def p99(row: Values) -> Any:
        return row.get("p99")

    return [
        Column("call", "call"),
        Column("p50, or rate", _value),
        Column("p99, ms", p99, milliseconds),
        Column("compared with", _beside),
        Column("target", _aim),
        Column("met", lambda row: _MET[row["met"]]),
    ]


def _product_columns() -> list[Column]:
    def microseconds(milliseconds: float) -> str:
        return f"{milliseconds * 1e3:,.1f}"

    return [
        Column("call", "call"),
        Column("ours, µs", "value", microseconds),
        Column("torch's, µs", lambda row: row["value"] * row["times"], microseconds),
        Column("speed-up", "times", "{:.2f}".format),
        Column("0.97 met", lambda row: _MET[row["met"]]),
    ]


def _rows(products: bool) -> Callable[[Values], list[Any]]:
    return lambda values: [row for row in values["calls"] if (row["row"] == _PRODUCTS) is products]


_PRECISIONS = Table(
    "precisions-cpu",
    rows="sides",
    columns=(
        Column("side", "side"),
        Column("processor ms, median", "median_ms", "{:.1f}".format),
        Column("relative to our float32", "over_float32", "{:.2f}".format),
        Column("relative to our int8", "over_int8", "{:.2f}".format),
    ),
)
_PRODUCTS = "products"
BLOCKS: dict[str, Callable[[], str]] = {
    "precisions-cpu": _PRECISIONS,
    "calls-cpu": Table("calls-cpu", rows=_rows(False), columns=_columns()),
    "calls-cuda": Table("calls-cuda", rows=_rows(False), columns=_columns()),
    "calls-products": Table("products-cuda", rows=_rows(True), columns=_product_columns()),
}
