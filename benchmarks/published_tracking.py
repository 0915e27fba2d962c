"""What is published of tracks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.published_text import Column, Table, Values

_SIDES = {"baseline": "as AB3DMOT is"}


def _rows(values: Values) -> list[tuple[str, Values]]:
    """Sides with their figures, and what a choice by the other sequences reaches."""
    return [*values["cases"].items(), ("online, belief chosen by the other sequences", values["left_out"])]


def _percent(name: str) -> Callable[[tuple[str, Values]], Any]:
    return lambda row: 100 * row[1][name]


_FIGURES = Table(
    "tracking-cpu",
    rows=_rows,
    columns=[
        Column("tracker", lambda row: _SIDES.get(row[0], row[0])),
        Column("sAMOTA", _percent("samota"), ".2f"),
        Column("MOTA", _percent("mota"), ".2f"),
        Column("MOTP", _percent("motp"), ".2f"),
        Column("HOTA", _percent("hota"), ".2f"),
        Column("DetA", _percent("deta"), ".2f"),
        Column("AssA", _percent("assa"), ".2f"),
        Column("switches", lambda row: row[1]["id_switches"], "d"),
        Column("fragments", lambda row: row[1]["fragments"], "d"),
        Column("frames/s", lambda row: row[1].get("frames_per_s"), ",d"),
    ],
)

BLOCKS: dict[str, Callable[[], str]] = {"tracking": _FIGURES}
