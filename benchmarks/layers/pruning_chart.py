"""A picture of the pruning study: what each row loses against the dense network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from benchmarks.lib.pictures import save_picture

_TEXT, _FAINT, _GRID = "#1f2933", "#5f6b7a", "#e4e8ee"
#: Okabe and Ito's colours, which stay apart for colour-blind eyes.
_COLOURS = {"dense": "#7a8594", "one-shot": "#d55e00", "trained on": "#0072b2"}
_SHOWN = ("2:4", "1:4")
_ROW_INCHES = 0.21
#: One-shot rows lose up to 90 points and trained ones about one: logarithmic beyond this many points.
_LINEAR = 1.0
_TICKS = (-5, -2, -1, 0, 1, 2, 5, 10, 20, 50, 100)


def draw(values: dict[str, Any], path: Path) -> None:
    """Write a PNG for the result of ``pruning_accuracy``: a row a network, a column a pattern.

    At most two patterns are drawn: 2:4 and 1:4 where they were measured.
    """
    cases = {(case["model"], case["pattern"]): case for case in values["cases"]}
    models = list(dict.fromkeys(model for model, _ in cases))
    measured = list(dict.fromkeys(pattern for _, pattern in cases))
    patterns = [pattern for pattern in _SHOWN if pattern in measured] or measured[:2]
    count = max(len(case["rows"]) for case in cases.values())
    figure = Figure(
        figsize=(3.0 + 4.6 * len(patterns), 1.2 + (0.5 + _ROW_INCHES * count) * len(models)),
        layout="constrained",
        facecolor="white",
    )
    axes = figure.subplots(len(models), len(patterns), sharey=True, sharex="col", squeeze=False)
    for down, model in enumerate(models):
        for across, pattern in enumerate(patterns):
            _draw_panel(axes[down, across], cases[model, pattern])
    for panel in axes[-1]:
        panel.set_xlabel(
            "points of accuracy lost against the dense network (logarithmic beyond 1)",
            fontsize=9,
            color=_FAINT,
        )
    seeds = len(values["settings"]["seeds"])
    figure.suptitle(
        f"Accuracy lost by pruning: mean of {seeds} seeds, bars of one standard deviation, a dot a seed",
        fontsize=12,
        color=_TEXT,
        x=0.01,
        ha="left",
    )
    labels = {
        "dense": "dense",
        "one-shot": "pruned in one shot",
        "trained on": f"and trained for {values['settings']['steps']} steps more",
    }
    figure.legend(
        handles=[Patch(color=_COLOURS[group], label=label) for group, label in labels.items()],
        loc="outside lower center",
        ncols=len(labels),
        frameon=False,
        fontsize=10,
        labelcolor=_TEXT,
    )
    save_picture(figure, path)


def _draw_panel(axes: Axes, case: dict[str, Any]) -> None:
    rows = {name: row for name, row in case["rows"].items() if name != "dense"}
    for position, row in enumerate(rows.values()):
        # A published file has no single seeds.
        lost = [-100 * value for value in row["over_dense"].get("values", ())]
        mean, std = -100 * row["over_dense"]["mean"], 100 * (row["over_dense"]["std"] or 0.0)
        axes.barh(position, mean, color=_COLOURS[row["group"]], height=0.68, zorder=2)
        axes.errorbar(mean, position, xerr=std, color=_TEXT, linewidth=1.0, capsize=2, zorder=4)
        axes.scatter(lost, [position] * len(lost), s=9, color=_TEXT, alpha=0.6, linewidths=0, zorder=3)
        axes.annotate(
            f"{round(mean, 1) + 0.0:.1f}",  # Without the sign of a negative zero.
            (max(mean + std, *lost, 0.0), position),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            color=_FAINT,
        )
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xscale("symlog", linthresh=_LINEAR, linscale=0.6)
    axes.xaxis.set_major_locator(FixedLocator(_TICKS))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlim(-6, 200)
    axes.axvline(0, color=_TEXT, linewidth=0.8, zorder=3)
    axes.grid(True, axis="x", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_FAINT, labelsize=8, length=0)
    for tick in axes.get_yticklabels():
        tick.set_color(_TEXT)
    for spine in axes.spines.values():
        spine.set_visible(False)
    dense = case["rows"]["dense"]["accuracy"]
    share = f"{case['rows']['magnitude']['sparsity']['mean']:.0%}"
    axes.set_title(
        f"{case['model']}, {case['pattern']} ({share} zeros); dense: {100 * dense['mean']:.1f} %",
        loc="left",
        fontsize=10,
        color=_TEXT,
    )
