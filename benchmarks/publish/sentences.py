"""Published blocks of text search in memories, and of questions in plain words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.publish.text import Column, Table, Values


def _interval(name: str) -> Callable[[Values], Any]:
    return lambda row: f"{row[name]['recall']:.3f} ({row[name]['low']:.3f} to {row[name]['high']:.3f})"


_RECALL = Table(
    "sentences-cpu",
    rows="sides",
    columns=[
        Column("recall@10 (95 %)", "name"),
        Column("turns", _interval("all")),
        Column("sessions@5", ("sessions", "5"), ".3f"),
        Column("sessions@10", ("sessions", "10"), ".3f"),
        *(
            Column(name.replace("_", " "), ("by_category", name), ".3f")
            for name in ("single_hop", "temporal", "multi_hop", "open_domain")
        ),
    ],
)
_TIMES = Table(
    "sentences-cpu",
    rows=lambda values: values["times"].items(),
    columns=[
        Column("ms", (0,)),
        Column("median", (1, "median_ms"), ".2f"),
        Column("99th percentile", (1, "p99_ms"), ".2f"),
        Column("CPU, median", lambda row: row[1].get("cpu_ms"), ".2f", "–"),
    ],
)

_QUESTIONS = Table(
    "answers-cpu",
    rows="cases",
    columns=[
        Column("set", "set"),
        Column("questions", "questions", "d"),
        Column("answered right", "answered", "d"),
        Column("rightly refused or nothing known", "rightly_refused", "d"),
        Column("refused, though the store knows", "refused", "d"),
        Column("wrong", "mistaken", "d"),
    ],
)

BLOCKS: dict[str, Callable[[], str]] = {
    "sentences": _RECALL,
    "sentences-times": _TIMES,
    "questions": _QUESTIONS,
}
