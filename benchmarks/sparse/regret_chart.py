"""A picture of the sweep over formats: what each rule's choice loses against the fastest format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from benchmarks.lib.environment import device_name
from benchmarks.lib.pictures import save_picture

_TEXT, _FAINT, _GRID = "#1f2933", "#5f6b7a", "#e4e8ee"
#: Okabe and Ito's blue and vermilion, which stay apart for colour-blind eyes.
_COLOURS = {"ours": "#0072b2", "classic": "#d55e00"}
_LABELS = {"ours": "choose_format", "classic": "classic tree"}
_TITLES = {"spmv": "times a vector", "spmm": "times 64 columns"}
_TICKS = (1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
_ROW_INCHES = 0.235


def draw(values: dict[str, Any], path: Path) -> None:
    """Write a PNG for the result of ``benchmarks.sparse.formats``: a row a matrix, a panel a product."""
    operations = list(values["summary"])
    panels = {name: [row for row in values["cases"] if row["operation"] == name] for name in operations}
    count = max(len(rows) for rows in panels.values())
    figure = Figure(
        figsize=(4.2 + 4.4 * len(operations), 1.7 + _ROW_INCHES * count),
        layout="constrained",
        facecolor="white",
    )
    axes = figure.subplots(1, len(operations), sharey=True, squeeze=False)[0]
    largest = max(row[rule]["regret"] for row in values["cases"] for rule in _COLOURS)
    for panel, name in zip(axes, operations, strict=True):
        _draw_panel(panel, panels[name], largest)
        panel.set_title(_title(name, values["summary"][name]), loc="left", fontsize=10, color=_TEXT)
    _label_rows(axes[0], next(iter(panels.values())))
    figure.suptitle(
        f"Time of the chosen format over the fastest, {device_name(values)}",
        fontsize=12,
        color=_TEXT,
        x=0.01,
        ha="left",
    )
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles[:2],
        labels[:2],
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=10,
        labelcolor=_TEXT,
    )
    save_picture(figure, path)


def _title(operation: str, rules: dict[str, Any]) -> str:
    means = ", ".join(f"{_LABELS[rule]} {entry['geometric_mean']:.2f}" for rule, entry in rules.items())
    return f"{_TITLES[operation]}\nmean: {means}"


def _draw_panel(axes: Axes, rows: list[dict[str, Any]], largest: float) -> None:
    axes.set_xscale("log")
    axes.set_xlim(0.95, max(2.0, largest * 1.6))
    for position, row in enumerate(rows):
        low, high = sorted((row["ours"]["regret"], row["classic"]["regret"]))
        axes.plot([low, high], [position, position], color="#c5cdd8", linewidth=1.4, zorder=2)
        worse = row["classic"] if row["classic"]["regret"] >= row["ours"]["regret"] else row["ours"]
        if worse["regret"] > 1.1:
            text = f"{worse['format']}, best {row['best']}"
            axes.annotate(
                text,
                (worse["regret"], position),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontsize=7,
                color=_FAINT,
            )
    # The classic tree is the larger disc, so that both are seen where they agree.
    for rule, size in (("classic", 46), ("ours", 17)):
        axes.scatter(
            [row[rule]["regret"] for row in rows],
            range(len(rows)),
            s=size,
            color=_COLOURS[rule],
            label=_LABELS[rule],
            zorder=3,
            linewidths=0,
        )
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in _TICKS if tick <= max(2.0, largest * 1.6)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.grid(True, axis="x", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_FAINT, labelsize=8, length=0)
    for start in _group_starts(rows)[1:]:
        axes.axhline(start - 0.5, color=_GRID, linewidth=0.8)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _label_rows(axes: Axes, rows: list[dict[str, Any]]) -> None:
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    for tick in axes.get_yticklabels():
        tick.set_color(_TEXT)
    axes.set_ylim(len(rows) - 0.4, -0.6)


def _group_starts(rows: list[dict[str, Any]]) -> list[int]:
    return [index for index, row in enumerate(rows) if index == 0 or row["group"] != rows[index - 1]["group"]]
