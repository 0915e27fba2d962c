"""Published blocks of a store on a server."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.publish.text import Column, Table, Values


def _filters(values: Values) -> list[str]:
    return list(dict.fromkeys(name for case in values["cases"] for name in case.get("questions", {})))


def _question(name: str) -> Column:
    """Time and recall in one cell."""

    return Column(name, ("questions", name), lambda found: f"{found['p50_ms']:.1f}, {found['recall']:.2f}")


_ADDED = Table(
    "fleet-cpu",
    rows=lambda values: [case for case in values["cases"] if "added_per_s" in case],
    columns=[
        Column("side", "side"),
        Column("rows", "rows", ",d"),
        Column("added per second, 1,000 per commit", "added_per_s", ",.0f"),
        Column("one per commit", "added_singly_per_s", ",.0f"),
        Column("by 8 threads", "added_by_threads_per_s", ",.0f", "–"),
        Column("making the index, s", "index_s", ",.1f"),
        Column("bytes per row", "bytes_per_row", ",.0f"),
        Column("by words, ms", lambda row: row.get("words", {}).get("p50_ms"), ".1f", "–"),
    ],
)
_QUESTIONS = Table(
    "fleet-cpu",
    rows="cases",
    columns=lambda values: [
        Column("side", "side"),
        Column("rows", "rows", ",d"),
        *map(_question, _filters(values)),
    ],
)
_LARGE = Table(
    "large-cpu",
    rows="cases",
    columns=[
        Column("side", "side"),
        Column("rows", "rows", ",d"),
        Column("added per second", ("load", "per_s"), ",.0f"),
        Column("making the index, s", "index_s", ",.0f", "–"),
        Column("opening, s", "open_s", ".1f", "–"),
        Column("bytes per row", "bytes_per_row", ",.0f"),
        Column("archived rows per second", ("archive", "per_s"), ",.0f", "–"),
        Column("restored rows per second", ("restore", "per_s"), ",.0f", "–"),
        Column("graph of restored rows, s", "restored_index_s", ",.1f", "–"),
    ],
)
_LARGE_QUESTIONS = Table(
    "large-cpu",
    rows=lambda values: [
        {"side": case["side"], "rows": case["rows"], "question": name, **found}
        for case in values["cases"]
        for name, found in case.items()
        if isinstance(found, dict) and "p50_ms" in found
    ],
    columns=[
        Column("side", "side"),
        Column("rows", "rows", ",d"),
        Column("question", "question"),
        Column("p50, ms", "p50_ms", ",.1f"),
        Column("p99, ms", "p99_ms", ",.1f"),
        Column("recall", "recall", ".3f", "–"),
    ],
)
_LARGE_READERS = Table(
    "large-cpu",
    rows=lambda values: [
        {"side": case["side"], "rows": case["rows"], **case["readers"]}
        for case in values["cases"]
        if "readers" in case
    ],
    columns=[
        Column("side", "side"),
        Column("rows", "rows", ",d"),
        Column("queries per second", "queries_per_s", ",.0f"),
        Column("all, p99 ms", ("questions", "all", "p99_ms"), ",.0f"),
        Column("place 1 %, p99 ms", ("questions", "place 1 %", "p99_ms"), ",.0f"),
        Column("adds of ten per second", "adds_per_s", ",.1f"),
        Column("add, p99 ms", ("add", "p99_ms"), ",.0f"),
        Column("acknowledged adds not found", "missed", "d"),
    ],
)
_LARGE_UPGRADES = Table(
    "large-cpu",
    rows=lambda values: [
        {"side": case["side"], "who": who, **case["upgrade"], **case["upgrade"][who]}
        for case in values["cases"]
        for who in ("older reader", "older writer", "newer reader", "newer writer")
        if "upgrade" in case
    ],
    columns=[
        Column("side", "side"),
        Column("rows", "rows", ",d"),
        Column("upgrade, s", "upgrade_s", ".1f"),
        Column("program", "who"),
        Column("calls", "calls", ",d"),
        Column("errors", "errors", "d"),
        Column("longest call, ms", "longest_ms", ",.0f"),
        Column("lost memories", "lost", "d"),
    ],
)
_READERS = Table(
    "readers-cpu",
    rows="sides",
    columns=[
        Column("load", "load"),
        Column("readers", "readers", "d"),
        Column("queries per second", "per_s", ",.0f"),
        Column("relative to no readers", "ratio", ".2f"),
        Column("median, ms", "p50_ms", ".1f"),
        Column("99th percentile, ms", "p99_ms", ".1f"),
        Column("CPU of the service per query, ms", "cpu_ms", ".2f"),
    ],
)
BLOCKS: dict[str, Callable[[], str]] = {
    "fleet-added": _ADDED,
    "fleet-questions": _QUESTIONS,
    "large": _LARGE,
    "large-questions": _LARGE_QUESTIONS,
    "large-readers": _LARGE_READERS,
    "large-upgrades": _LARGE_UPGRADES,
    "readers": _READERS,
}
