"""A picture of a detector result: where the time goes, and what a larger scene costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.lib.environment import device_name
from benchmarks.lib.pictures import save_picture

#: Stages that are drawn as one bar, and its colour.
_PARTS = {
    "encoder": (("pillars", "encoder"), "#5b5b5b"),
    "backbone": (("backbone",), "#0072b2"),
    "neck": (("neck",), "#56b4e9"),
    "head": (("head",), "#009e73"),
    "refinement": (("refine",), "#e69f00"),
    "NMS": (("proposal NMS", "NMS"), "#cc79a7"),
}
_SIDE_COLOURS = {"sparse": "#0072b2", "dense": "#d55e00"}


def draw(values: dict[str, Any], path: Path) -> None:
    """Write a PNG for the result of ``benchmarks.detector.detector``."""
    with_scaling = bool(values["scaling"])
    figure = Figure(figsize=(13 if with_scaling else 8, 4.6), layout="constrained")
    axes = figure.subplots(1, 2 if with_scaling else 1, squeeze=False)
    threads = values["environment"]["threads"]
    figure.suptitle(
        f"Sparse detector and dense baseline, {device_name(values)}, {threads} threads", fontsize=11
    )
    _draw_stages(axes[0, 0], values)
    if with_scaling:
        _draw_scaling(axes[0, 1], values)
    save_picture(figure, path, dpi=130)


def _draw_stages(axes: Axes, values: dict[str, Any]) -> None:
    rows = values["variants"]
    names = list(rows)[::-1]
    left = [0.0] * len(names)
    for part, (stages, colour) in _PARTS.items():
        widths = [sum(rows[name]["stages_ms"].get(stage, 0.0) for stage in stages) for name in names]
        axes.barh(names, widths, left=left, color=colour, label=part, height=0.7)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for position, name in enumerate(names):
        axes.text(
            left[position], position, f" {rows[name]['time']['median_ms']:.0f} ms", va="center", fontsize=9
        )
    axes.set_xlim(0, max(left) * 1.15)
    axes.set_xlabel("milliseconds per frame (number: median of the whole frame)")
    axes.set_title(
        f"Time by stage, {values['settings']['frames']} frames of {values['frames']['kind']}", fontsize=10
    )
    axes.legend(fontsize=8, loc="best", ncols=2)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_scaling(axes: Axes, values: dict[str, Any]) -> None:
    rows = values["scaling"]
    first = [row for row in rows if row["kind"] == "range" and row["factor"] == 1]
    for kind, marker, line in (("range", "o", "-"), ("tiled", "s", "--"), ("full scan", "*", "")):
        chosen = [row for row in rows if row["kind"] == kind]
        if kind == "tiled":
            chosen = first + chosen
        for name in sorted({name for row in chosen for name in row["time"]}):
            if name not in _SIDE_COLOURS:
                continue
            spots = [
                (row["area_m2"], row["time"][name]["median_ms"]) for row in chosen if name in row["time"]
            ]
            label = {"range": "same points", "tiled": "scene tiled", "full scan": "full scans"}[kind]
            axes.plot(
                *zip(*spots, strict=True),
                marker=marker,
                markersize=11 if marker == "*" else 6,
                linestyle=line or "none",
                color=_SIDE_COLOURS[name],
                label=f"{name}, {label}",
            )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("area in range, m²")
    axes.set_ylabel("milliseconds per frame, float32")
    axes.set_title("Time against area", fontsize=10)
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
