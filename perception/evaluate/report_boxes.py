"""Evaluations of boxes and of nuScenes for people: tables, and figures of precision-recall curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from perception.evaluate.box_table import Float64Array
from perception.evaluate.boxes.result import BoxesResult
from perception.evaluate.nuscenes.result import ERRORS, SAMPLE_COUNT, NuScenesResult
from perception.evaluate.reports.figure import new_figure, save_figure
from sparse_core.common.table import Table, cell

_COLUMNS, _PANEL_WIDTH_PX, _PANEL_HEIGHT_PX = 5, 300, 340
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
#: A curve: legend, recall, precision.
_Curve = tuple[str, Float64Array, Float64Array]


def boxes_tables(result: BoxesResult) -> list[Table]:
    """AP and errors by class; by range; by points where they were counted."""
    rows = [
        (
            name,
            str(found.rule),
            found.labels,
            found.detections,
            found.false,
            *(cell(found.ap[metric], ".2f") for metric in ("3d", "bev")),
            cell(found.recall["3d"], ".1f"),
            cell(found.position_m, ".3f"),
            cell(found.size_error, ".3f"),
            cell(math.degrees(found.yaw_rad), ".1f"),
            cell(100 * found.turned, ".0f"),
        )
        for name, found in result.classes.items()
    ]
    heads = ["class", "match", "labels", "boxes", "false", "AP 3D", "AP BEV", "recall", "position\nm"]
    heads += ["size\n1 - IoU", "yaw\ndegrees", "turned\n%"]
    tables = [
        Table(
            heads,
            rows,
            title=f"Boxes, {result.frames} frames: average precision over all recalls, percent",
            note=_left_out(result),
        )
    ]
    tables.append(_parts(result, "by_range", "By range: AP 3D (labels found / labels, false)"))
    if result.points_counted:
        tables.append(_parts(result, "by_points", "By points in the label: labels found / labels"))
    return tables


def _parts(result: BoxesResult, which: str, title: str) -> Table:
    heads, rows = ["class"], []
    for name, found in result.classes.items():
        parts = found.by_range if which == "by_range" else found.by_points
        heads = ["class", *(part.name for part in parts)]
        rows.append(
            [name]
            + [
                (f"{part.ap:.1f} " if math.isfinite(part.ap) else "")
                + (f"({part.found}/{part.labels}, {part.false})" if part.false is not None else "")
                + (f"{part.found}/{part.labels}" if part.false is None else "")
                for part in parts
            ]
        )
    return Table(heads, rows, title=title, right=heads[1:])


def _left_out(result: BoxesResult) -> str:
    """What does not count, in words."""
    lines = [f"left out: {count} {reason}" for reason, count in result.left_out.items()]
    for name, found in result.classes.items():
        lines += [f"{name}: {count} labels of {reason}" for reason, count in found.ignored_labels.items()]
        lines += [
            f"{name}: {count} detections {reason}" for reason, count in found.ignored_detections.items()
        ]
    return "\n".join(lines or ["Every label and every detection counts."])


def nuscenes_tables(result: NuScenesResult) -> list[Table]:
    """AP and errors by class, with mAP, NDS and mean errors."""
    rows = [
        (
            name,
            found.labels,
            found.detections,
            cell(found.ap, ".3f"),
            *(cell(found.ap_at(distance), ".3f") for distance in found.precision),
            *(cell(found.errors[error], ".3f") for error in ERRORS),
        )
        for name, found in result.classes.items()
    ]
    means = [cell(result.mean_error(error), ".3f") for error in ERRORS]
    rows.append(("mean", "", "", cell(result.mean_ap, ".3f"), "", "", "", "", *means))
    distances = [f"{distance:g} m" for distance in next(iter(result.classes.values())).precision]
    left = [f"labels left out: {_counted(result.labels_left_out)}" if result.labels_left_out else ""]
    left += [
        f"detections left out: {_counted(result.detections_left_out)}" if result.detections_left_out else ""
    ]
    return [
        Table(
            ["class", "labels", "boxes", "AP", *distances, *ERRORS.values()],
            rows,
            title=f"nuScenes, {result.frames} frames: mAP {result.mean_ap:.4f}, NDS {result.nds:.4f}",
            note="\n".join(line for line in left if line),
            right=["labels", "boxes", *distances],
            ends=[len(rows) - 2],
        )
    ]


def _counted(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in reasons.items())


def plot_boxes(result: BoxesResult, path: str | Path) -> Path:
    """Precision over recall, 3-D and seen from above, a panel each class; PNG."""
    panels: list[tuple[str, Sequence[_Curve]]] = []
    for name, found in result.classes.items():
        curves: list[_Curve] = []
        for metric, right in found.right.items():
            recall = np.cumsum(right) / max(found.labels, 1)
            curves.append((metric.upper(), recall, np.cumsum(right) / np.arange(1, len(right) + 1)))
        shown = " / ".join(f"{value:.1f}" if math.isfinite(value) else "–" for value in found.ap.values())
        panels.append((f"{name}\nAP 3D / BEV {shown}", curves))
    return _draw(panels, f"Precision and recall, {result.frames} frames", path)


def plot_nuscenes(result: NuScenesResult, path: str | Path) -> Path:
    """Precision over recall at the four distances, a panel each class; PNG."""
    recall = np.linspace(0, 1, SAMPLE_COUNT)
    panels = [
        (
            f"{name}\nAP {found.ap:.3f}",
            [(f"{distance:g} m", recall, curve) for distance, curve in found.precision.items()],
        )
        for name, found in result.classes.items()
    ]
    return _draw(panels, f"nuScenes precision and recall, {result.frames} frames", path)


def _draw(panels: Sequence[tuple[str, Sequence[_Curve]]], title: str, path: str | Path) -> Path:
    columns = max(1, min(_COLUMNS, len(panels)))
    rows = max(1, math.ceil(len(panels) / columns))
    figure = new_figure(max(900, columns * _PANEL_WIDTH_PX), rows * _PANEL_HEIGHT_PX + 60)
    places = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for place in places[len(panels) :]:
        place.set_axis_off()
    for place, (name, curves) in zip(places, panels, strict=False):
        for colour, (legend, recall, precision) in zip(_COLOURS, curves, strict=False):
            place.plot(recall, precision, color=colour, linewidth=1.8, label=legend)
        place.set_title(name, fontsize=10)
        place.set_xlabel("recall")
        place.set_xlim(0, 1)
        place.set_ylim(0, 1.02)
        place.grid(alpha=0.3)
    if panels:
        places[0].set_ylabel("precision")
        handles, labels = places[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=max(1, len(labels)), frameon=False)
    figure.suptitle(title, fontsize=13)
    return save_figure(figure, path)
