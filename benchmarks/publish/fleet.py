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
    "readers": _READERS,
}
