"""Published blocks of archives detected by several processes."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.publish.text import Column, Table

_COLUMNS = [
    Column("side", "side"),
    Column("scans per second", "scans_per_s", ",.1f"),
    Column("times one process", "times", ".2f"),
    Column("least to most of the rounds", lambda row: f"{row['times_least']:.2f} to {row['times_most']:.2f}"),
    Column("whole command, s", "median_s", ",.1f"),
]
BLOCKS: dict[str, Callable[[], str]] = {
    f"archives-{device}": Table(f"archives-{device}", rows="cases", columns=_COLUMNS)
    for device in ("cpu", "cuda")
}
