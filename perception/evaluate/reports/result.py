"""Tables and precision-recall curves of a result of any protocol."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from perception.evaluate.boxes.result import BoxesResult
from perception.evaluate.judge import EvaluationResult
from perception.evaluate.kitti.protocol import METRICS, Metric
from perception.evaluate.kitti.result import DIFFICULTY_NAMES, KittiResult
from perception.evaluate.nuscenes.result import ERRORS, SAMPLE_COUNT, NuScenesResult
from perception.evaluate.reports.figure import COLOURS, Curve, draw_curves
from sparse_core.common.table import Table, cell

_METRIC_NAMES: dict[Metric, str] = {"2d": "2D", "bev": "BEV", "3d": "3D", "aos": "AOS"}
_PANEL_METRICS: tuple[tuple[Metric, str], ...] = (("3d", "-"), ("bev", "--"))
_COUNTS = "labels\neasy/mod./hard"
_FEW_LABELS = "With fewer than 41 labels even perfect detections stay below 100 (official protocol)."
# Later lines are thinner, so that coinciding curves stay visible.
_LINE_WIDTHS = (3.4, 2.3, 1.2)


def result_tables(result: EvaluationResult) -> list[Table]:
    """Return the printed tables of a result.

    Raises:
        TypeError: the result belongs to no protocol.
    """
    if isinstance(result, KittiResult):
        return [_kitti_table(result)]
    if isinstance(result, NuScenesResult):
        return _nuscenes_tables(result)
    if isinstance(result, BoxesResult):
        return _boxes_tables(result)
    raise TypeError(f"expected a result of a protocol, got {type(result).__name__}")


def plot_result(result: EvaluationResult, path: str | Path) -> Path:
    """Draw precision-recall curves, one panel per class, as a PNG file at least 900 pixels wide.

    Args:
        result: of any protocol.
        path: of the file; missing folders are created.

    Raises:
        DataError: the file cannot be written.
        TypeError: the result belongs to no protocol.
    """
    if isinstance(result, KittiResult):
        return _plot_kitti(result, path)
    if isinstance(result, NuScenesResult):
        return _plot_nuscenes(result, path)
    if isinstance(result, BoxesResult):
        return _plot_boxes(result, path)
    raise TypeError(f"expected a result of a protocol, got {type(result).__name__}")


def _kitti_table(result: KittiResult) -> Table:
    """Return average precision in percent: one row per class and metric, AP40 and AP11 by difficulty.

    The first row of a class also has the number of counting labels by difficulty. Undefined AP is a dash.
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


def _percentages(result: KittiResult, name: str, metric: Metric) -> list[str]:
    values = [
        result.ap(name, metric, difficulty, points) for points in (40, 11) for difficulty in DIFFICULTY_NAMES
    ]
    return [cell(value, ".2f") for value in values]


def _plot_kitti(result: KittiResult, path: str | Path) -> Path:
    panels = []
    for name in result.classes:
        lines = [f"{_METRIC_NAMES[metric]} {_ap40(result, name, metric)}" for metric, _ in _PANEL_METRICS]
        curves = [
            Curve(
                f"{_METRIC_NAMES[metric]} {difficulty}",
                *result.precision_recall(name, metric, difficulty),
                colour,
                style,
                width,
            )
            for metric, style in _PANEL_METRICS
            for difficulty, colour, width in zip(DIFFICULTY_NAMES, COLOURS, _LINE_WIDTHS, strict=False)
        ]
        panels.append(("\n".join([name, "AP40 easy / moderate / hard", *lines]), curves))
    title = f"KITTI precision and recall, {len(result.frame_ids)} frames"
    return draw_curves(panels, title, path, columns=len(panels), panel_px=(440, 620), least_width_px=1200)


def _ap40(result: KittiResult, name: str, metric: Metric) -> str:
    return " / ".join(f"{result.ap(name, metric, difficulty):.1f}" for difficulty in DIFFICULTY_NAMES)


def _boxes_tables(result: BoxesResult) -> list[Table]:
    """Return AP and errors by class, by range, and by points if counted."""
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
    """Describe the boxes that do not count."""
    lines = [f"excluded: {count} {reason}" for reason, count in result.left_out.items()]
    for name, found in result.classes.items():
        lines += [f"{name}: ignored {count} labels ({why})" for why, count in found.ignored_labels.items()]
        lines += [
            f"{name}: ignored {count} detections ({why})" for why, count in found.ignored_detections.items()
        ]
    return "\n".join(lines or ["Every label and every detection counts."])


def _plot_boxes(result: BoxesResult, path: str | Path) -> Path:
    """Plot 3D and BEV curves."""
    panels = []
    for name, found in result.classes.items():
        curves = [
            Curve(
                metric.upper(),
                np.cumsum(right) / max(found.labels, 1),
                np.cumsum(right) / np.arange(1, len(right) + 1),
                colour,
            )
            for colour, (metric, right) in zip(COLOURS, found.right.items(), strict=False)
        ]
        shown = " / ".join(f"{value:.1f}" if math.isfinite(value) else "–" for value in found.ap.values())
        panels.append((f"{name}\nAP 3D / BEV {shown}", curves))
    title = f"Precision and recall, {result.frames} frames"
    return draw_curves(panels, title, path, columns=5, panel_px=(300, 400), least_width_px=900)


def _nuscenes_tables(result: NuScenesResult) -> list[Table]:
    """Return AP and errors by class, with mAP, NDS and mean errors."""
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
    left = [f"excluded labels: {_counted(result.labels_left_out)}" if result.labels_left_out else ""]
    left += [
        f"excluded detections: {_counted(result.detections_left_out)}" if result.detections_left_out else ""
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


def _plot_nuscenes(result: NuScenesResult, path: str | Path) -> Path:
    """Plot the curves at the four distances."""
    recall = np.linspace(0, 1, SAMPLE_COUNT)
    panels = [
        (
            f"{name}\nAP {found.ap:.3f}",
            [
                Curve(f"{distance:g} m", recall, precision, colour)
                for colour, (distance, precision) in zip(COLOURS, found.precision.items(), strict=False)
            ],
        )
        for name, found in result.classes.items()
    ]
    title = f"nuScenes precision and recall, {result.frames} frames; one curve per distance of a match"
    return draw_curves(panels, title, path, columns=5, panel_px=(300, 400), least_width_px=900)
