"""A picture of a detector result: where the time goes, and what a larger scene costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

_STAGE_COLOURS = [f"C{index}" for index in range(10)]
_SIDE_COLOURS = {"sparse": "#0072b2", "dense": "#d55e00"}


def draw(values: dict[str, Any], path: Path) -> None:
    """Write a PNG for the result of ``benchmarks.detector.detector``."""
    with_scaling = bool(values["scaling"])
    figure, axes = plt.subplots(
        1,
        2 if with_scaling else 1,
        figsize=(13 if with_scaling else 8, 4.6),
        squeeze=False,
        layout="constrained",
    )
    _draw_stages(axes[0, 0], values)
    if with_scaling:
        _draw_scaling(axes[0, 1], values)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _draw_stages(axes: Axes, values: dict[str, Any]) -> None:
    rows = values["variants"]
    names = list(rows)[::-1]
    stages: list[str] = []
    for row in rows.values():
        stages += [stage for stage in row["stages_ms"] if stage not in stages]
    left = [0.0] * len(names)
    for colour, stage in zip(_STAGE_COLOURS, stages, strict=False):
        widths = [rows[name]["stages_ms"].get(stage, 0.0) for name in names]
        axes.barh(names, widths, left=left, color=colour, label=stage, height=0.7)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for position, name in enumerate(names):
        axes.text(
            left[position], position, f" {rows[name]['time']['median_ms']:.0f} ms", va="center", fontsize=9
        )
    axes.set_xlim(0, max(left) * 1.15)
    axes.set_xlabel("milliseconds a frame, by stage (label: median of the whole frame)")
    axes.set_title(f"{values['settings']['frames']} frames, {values['frames']['kind']}", fontsize=10)
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
    axes.set_ylabel("milliseconds a frame, float32")
    axes.set_title("Cost against scene", fontsize=10)
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
