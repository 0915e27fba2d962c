"""A KITTI evaluation for people: a table and a figure of precision-recall curves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from perception.evaluate.kitti.protocol import METRICS, Metric
from perception.evaluate.kitti.result import DIFFICULTY_NAMES, KittiResult
from perception.evaluate.reports.figure import new_figure, save_figure
from perception.evaluate.thresholds import ScoreChoice
from sparse_core.common.table import Table, cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_METRIC_NAMES: dict[Metric, str] = {"2d": "2D", "bev": "BEV", "3d": "3D", "aos": "AOS"}
# Easy, moderate, hard: distinguishable without colour vision.
_COLOURS = ("#0072B2", "#D55E00", "#009E73")
_PANEL_METRICS: tuple[tuple[Metric, str], ...] = (("3d", "-"), ("bev", "--"))
_COUNTS = "labels\neasy/mod./hard"
_FEW_LABELS = "With fewer than 41 labels even perfect detections stay below 100 (official protocol)."
_SMALLEST_WIDTH_PX, _PANEL_WIDTH_PX, _HEIGHT_PX = 1200, 440, 620
# Later lines are thinner, so that equal curves stay visible behind each other.
_LINE_WIDTHS = (3.4, 2.3, 1.2)


def format_table(result: KittiResult) -> Table:
    """Average precision in percent: a row for each class and metric, AP40 and AP11 by difficulty.

    The first row of a class also says how many labels count in each difficulty. Where AP is undefined the
    table has a dash.
    """
    heads = ["class", "metric"]
    heads += [f"AP{points}\n{difficulty}" for points in (40, 11) for difficulty in DIFFICULTY_NAMES]
    rows = []
    for name in result.classes:
        counts = "/".join(str(result.label_counts[name, difficulty]) for difficulty in DIFFICULTY_NAMES)
        rows += [
            (
                name if metric == METRICS[0] else "",
                _METRIC_NAMES[metric],
                *_percentages(result, name, metric),
                counts if metric == METRICS[0] else "",
            )
            for metric in METRICS
        ]
    few = any(count < 41 for count in result.label_counts.values())
    return Table(
        [*heads, _COUNTS],
        rows,
        title=f"KITTI evaluation, {len(result.frame_ids)} frames: average precision in percent",
        right=[_COUNTS],
        note=_FEW_LABELS if few else "",
        ends=range(len(METRICS) - 1, len(rows), len(METRICS)),
    )


def format_choices(choices: Mapping[str, ScoreChoice]) -> Table:
    """Thresholds by class, and what they do on the frames that they were chosen on."""
    rows = [
        (
            name,
            cell(choice.threshold, ".2f"),
            choice.found,
            choice.false,
            choice.missed,
            cell(choice.f_measure, ".3f"),
        )
        for name, choice in choices.items()
    ]
    heads = ("class", "threshold", "found", "false", "missed", "F2")
    return Table(heads, rows, title="Score thresholds of the greatest F2 (3D IoU above 0.5)")


def plot_precision_recall(result: KittiResult, path: str | Path) -> Path:
    """Draw the 3-D and bird's-eye curves, one panel a class, as a PNG at least 1200 pixels wide.

    Args:
        result: what to draw.
        path: the file to write; the folder is made if need be.

    Raises:
        DataError: the file cannot be written.
    """
    width = max(_SMALLEST_WIDTH_PX, _PANEL_WIDTH_PX * len(result.classes))
    figure = new_figure(width, _HEIGHT_PX)
    panels = figure.subplots(1, len(result.classes), squeeze=False, sharey=True)[0]
    for panel, name in zip(panels, result.classes, strict=True):
        _draw_class(panel, result, name)
    panels[0].set_ylabel("precision")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=10)
    figure.suptitle(f"KITTI precision and recall, {len(result.frame_ids)} frames", fontsize=13)
    return save_figure(figure, path)


def _percentages(result: KittiResult, name: str, metric: Metric) -> list[str]:
    values = [
        result.ap(name, metric, difficulty, points) for points in (40, 11) for difficulty in DIFFICULTY_NAMES
    ]
    return [cell(value, ".2f") for value in values]


def _draw_class(panel: Axes, result: KittiResult, name: str) -> None:
    for metric, style in _PANEL_METRICS:
        for difficulty, colour, line_width in zip(DIFFICULTY_NAMES, _COLOURS, _LINE_WIDTHS, strict=True):
            curve = result.precision_recall(name, metric, difficulty)
            panel.plot(
                curve.recall,
                curve.precision,
                style,
                color=colour,
                linewidth=line_width,
                label=f"{_METRIC_NAMES[metric]} {difficulty}",
            )
    lines = [f"{_METRIC_NAMES[metric]} {_summary(result, name, metric)}" for metric, _ in _PANEL_METRICS]
    panel.set_title("\n".join([name, "AP40 easy / moderate / hard", *lines]), fontsize=10, pad=10)
    panel.set_xlabel("recall")
    panel.set_xlim(0, 1)
    panel.set_ylim(0, 1.02)
    panel.grid(alpha=0.3)


def _summary(result: KittiResult, name: str, metric: Metric) -> str:
    return " / ".join(f"{result.ap(name, metric, difficulty):.1f}" for difficulty in DIFFICULTY_NAMES)
