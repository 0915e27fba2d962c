"""A picture of the study of sparse training: what each row loses against the dense network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.layers.dynamic_rows import LABELS
from benchmarks.layers.dynamic_summary import MEASURES
from benchmarks.lib.pictures import save_picture

_TEXT, _FAINT, _GRID = "#1f2933", "#5f6b7a", "#e4e8ee"
#: Okabe and Ito's colours, which stay apart for colour-blind eyes.
_COLOURS = {
    "dense": "#1f2933",
    "small dense": "#7a8594",
    "static random": "#e69f00",
    "SET": "#56b4e9",
    "RigL": "#0072b2",
    "RigL, fan-in": "#009e73",
    "RigL, blocks": "#cc79a7",
}


def draw(values: dict[str, Any], path: Path) -> None:
    """Write a PNG for the result of ``dynamic_accuracy``: a row a task, a column a length."""
    cases = values["cases"]
    tasks = [task for task in MEASURES if any(case["task"] == task for case in cases)]
    lengths = sorted({case["length"] for case in cases})
    figure = Figure(
        figsize=(1.6 + 4.6 * len(lengths), 1.1 + 2.6 * len(tasks)),
        layout="constrained",
        facecolor="white",
    )
    axes = figure.subplots(len(tasks), len(lengths), squeeze=False)
    for down, task in enumerate(tasks):
        for across, length in enumerate(lengths):
            chosen = [case for case in cases if case["task"] == task and case["length"] == length]
            _draw_panel(axes[down, across], task, length, chosen)
    seeds = max(len(case["seeds"]) for case in cases)
    figure.suptitle(
        f"Trained sparse from scratch: mean of up to {seeds} seeds, bars of one standard deviation",
        fontsize=12,
        color=_TEXT,
        x=0.01,
        ha="left",
    )
    figure.legend(
        handles=[
            Line2D(
                [],
                [],
                color=colour,
                linestyle="-" if label == "dense" else "",
                marker=None if label == "dense" else "o",
                label=label,
            )
            for label, colour in _COLOURS.items()
        ],
        loc="outside lower center",
        ncols=len(_COLOURS),
        frameon=False,
        fontsize=9,
        labelcolor=_TEXT,
    )
    save_picture(figure, path)


def _draw_panel(axes: Axes, task: str, length: int, cases: list[dict[str, Any]]) -> None:
    measure, title = MEASURES[task]
    scale = 100 if measure == "accuracy" else 1
    sparsities = sorted({case["sparsity"] for case in cases if case["sparsity"]})
    labels = [label for label in LABELS.values() if label != "dense"]
    width = 0.8 / len(labels)
    for case in cases:
        found = case["measures"][measure]
        mean, std = scale * found["mean"], scale * (found["std"] or 0.0)
        colour = _COLOURS[case["label"]]
        if case["label"] == "dense":
            axes.axhline(mean, color=colour, linewidth=1.2, zorder=1)
            continue
        at = (
            sparsities.index(case["sparsity"]) + (labels.index(case["label"]) - (len(labels) - 1) / 2) * width
        )
        axes.errorbar(at, mean, yerr=std, color=colour, marker="o", markersize=6, capsize=3, zorder=3)
        # A published file has no single seeds.
        single = [scale * value for value in found.get("values", ())]
        axes.scatter([at] * len(single), single, s=8, color=colour, alpha=0.5)
    axes.set_xticks(range(len(sparsities)), [f"{sparsity:.0%} sparse" for sparsity in sparsities])
    axes.set_xlim(-0.5, max(len(sparsities), 1) - 0.5)
    axes.set_title(
        f"{task}, {length} x the steps" if length > 1 else task, loc="left", fontsize=10, color=_TEXT
    )
    axes.set_ylabel(
        f"{title} ({'lower' if measure == 'bits' else 'higher'} is better)", fontsize=8, color=_FAINT
    )
    axes.grid(True, axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_FAINT, labelsize=8, length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
