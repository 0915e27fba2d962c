"""Published blocks of tracking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.publish.text import Column, Table, Values

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


def _ap(name: str) -> Callable[[tuple[str, Values]], Any]:
    return lambda row: row[1]["ap"][name]


def _of_class(name: str, figure: str) -> Callable[[tuple[str, Values]], Any]:
    return lambda row: 100 * row[1]["classes"][name][figure] if "classes" in row[1] else None


def _moving(row: tuple[str, Values]) -> Any:
    counts = row[1].get("moving")
    if counts is None:
        return None
    return 100 * (counts["moves, said"] + counts["stands, not said"]) / sum(counts.values())


_OWN = Table(
    "tracking-cpu",
    rows=lambda values: list(values["own"].items()),
    columns=[
        Column("boxes of", lambda row: row[0]),
        *(Column(f"AP {name.lower()}", _ap(name), ".2f") for name in ("Car", "Pedestrian", "Cyclist")),
        Column("sAMOTA car", _of_class("Car", "samota"), ".2f"),
        Column("MOTA car", _of_class("Car", "mota"), ".2f"),
        *(
            Column(f"HOTA {name.lower()}", _of_class(name, "hota"), ".2f")
            for name in ("Car", "Pedestrian", "Cyclist")
        ),
        Column("moving or not, right", _moving, ".1f"),
    ],
)

_NUSCENES = Table(
    "tracking-cpu",
    rows=lambda values: list(values["nuscenes"].items()),
    columns=[
        Column("boxes of, tracker", lambda row: row[0]),
        Column("AMOTA", _percent("amota"), ".2f"),
        Column("AMOTP m", lambda row: row[1]["amotp"], ".3f"),
        Column("MOTA", _percent("mota"), ".2f"),
        Column("recall", _percent("recall"), ".2f"),
        Column("switches", lambda row: int(row[1]["id_switches"]), "d"),
        Column("fragments", lambda row: int(row[1]["fragments"]), "d"),
        Column("updates/s", lambda row: row[1]["updates_per_s"], ",d"),
    ],
)

_DELIVERY = Table(
    "delivery-cpu",
    rows=lambda values: [(name, row) for name, rows in values["cases"].items() for row in rows],
    columns=[
        Column("weights", lambda row: row[0].removeprefix("pointpillars-")),
        Column("latency", lambda row: row[1]["latency"]),
        Column("boxes", lambda row: row[1]["side"]),
        Column("AP car, at delivery", lambda row: row[1]["ap"]["Car"], ".1f"),
        Column("streaming", lambda row: row[1].get("streaming_ap", {}).get("Car"), ".1f"),
        Column("AP cyclist, at delivery", lambda row: row[1]["ap"]["Cyclist"], ".1f"),
        Column("streaming", lambda row: row[1].get("streaming_ap", {}).get("Cyclist"), ".1f"),
        Column("centre error, median m", lambda row: row[1]["error_m"]["median"], ".2f"),
        Column("p90 m", lambda row: row[1]["error_m"]["p90"], ".2f"),
        Column("in the 90 % circle", lambda row: 100 * row[1]["coverage"], ".1f"),
        Column("its radius, median m", lambda row: row[1]["radius_m"], ".2f"),
    ],
)

BLOCKS: dict[str, Callable[[], str]] = {
    "tracking": _FIGURES,
    "tracking-own": _OWN,
    "tracking-nuscenes": _NUSCENES,
    "delivery": _DELIVERY,
}
