"""Table and figure of a run comparison, with confidence intervals."""

from __future__ import annotations

import math
from pathlib import Path

from perception.evaluate.comparison import LEVEL, Interval, MeasureComparison, RunComparison
from perception.evaluate.reports.figure import new_figure, save_figure
from sparse_core.common.table import Table

_WIDTH_PX, _ROW_PX, _FRAME_PX = 1200, 22, 180
#: Longest name of a run in a picture, in characters.
_NAME = 100
_CLEAR, _CHANCE = "#0072B2", "#999999"


def comparison_table(comparison: RunComparison) -> Table:
    """Return every measure with its interval; for two runs also the other run, the difference and a
    verdict.
    """
    compared = len(comparison.names) > 1
    heads = ["class", "measure", "A"] + (["B", "A - B", "A is"] if compared else [])
    rows: list[list[str]] = []
    for row in comparison.rows:
        cells = [row.measure.label, f"{row.measure.name} {row.measure.part}".strip(), _shown(row.value)]
        if compared:
            other, difference = row.other, row.difference
            cells += [_shown(other) if other else "–", _shown(difference, "+") if difference else "–"]
            cells.append(_verdict(row))
        rows.append(cells)
    what = f"{LEVEL:.0%} intervals by {comparison.samples} samples of {comparison.frames} frames"
    kinds = [(row.measure.name.split()[0], bool(row.measure.part)) for row in comparison.rows]
    runs = "; ".join(f"{letter}: {name}" for letter, name in zip("AB", comparison.names, strict=False))
    note = "unclear: may be chance, the interval of the difference contains 0. " if compared else ""
    return Table(
        heads,
        rows,
        title=f"{what}, percent. {runs}",
        right=heads[2:5],
        note=f"{note}Frames of one drive are similar: with few drives, intervals are too narrow.",
        ends=[place for place in range(len(kinds) - 1) if kinds[place] != kinds[place + 1]],
    )


def _shown(interval: Interval, sign: str = "") -> str:
    if math.isnan(interval.value):
        return "–"
    value = f"{interval.value:{sign}.1f}"
    return value if math.isnan(interval.low) else f"{value} [{interval.low:.1f}, {interval.high:.1f}]"


def _verdict(row: MeasureComparison) -> str:
    if row.difference is None or row.may_be_chance is None:
        return "–"
    if row.may_be_chance:
        return "unclear"
    return "better" if row.difference.value > 0 else "worse"


def _short(name: str) -> str:
    """Return the end of a long path, so that the title fits."""
    return name if len(name) <= _NAME else f"…{name[1 - _NAME :]}"


def plot_comparison(comparison: RunComparison, path: str | Path) -> Path:
    """Plot differences of two runs, or the values of one, one line per measure with its interval, as PNG.

    Raises:
        DataError: the file cannot be written.
    """
    compared = len(comparison.names) > 1
    rows = [row for row in comparison.rows if row.difference is not None or not compared]
    figure = new_figure(_WIDTH_PX, _FRAME_PX + _ROW_PX * max(len(rows), 4))
    axes = figure.subplots()
    for place, row in enumerate(rows):
        interval = row.difference if row.difference is not None else row.value
        colour = _CHANCE if row.may_be_chance else _CLEAR
        if math.isfinite(interval.low):
            axes.plot([interval.low, interval.high], [place, place], color=colour, linewidth=2.5)
        axes.plot(interval.value, place, "o", color=colour, markersize=5)
    names = [f"{row.measure.label} {row.measure.name} {row.measure.part}".strip() for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(alpha=0.3)
    if compared:
        axes.axvline(0, color="black", linewidth=1)
        axes.set_xlabel("A minus B, percent; grey: may be chance")
    else:
        axes.set_xlabel("percent")
    title = [f"{LEVEL:.0%} intervals, {comparison.samples} samples of {comparison.frames} frames"]
    title += [f"{letter}: {_short(name)}" for letter, name in zip("AB", comparison.names, strict=False)]
    figure.suptitle("\n".join(title), fontsize=11)
    return save_figure(figure, path)
