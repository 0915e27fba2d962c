"""A picture of the retention study: value and answers over the share that is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.lib.pictures import save_picture

_COLOURS = {
    "ours": "#0072b2",
    "random": "#d55e00",
    "most recent": "#009e73",
    "most recent of each place": "#cc79a7",
}


def draw(values: dict[str, Any], path: Path) -> None:
    """Write a PNG for the result of ``benchmarks.memory.retention``."""
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    _draw(axes[0], values, "of_oracle", "value, % of the best subset's", (0.5, 97.0))
    _draw(axes[1], values, "agree", "answers, % that agree with the dense store's", (0.1, 95.0))
    settings = values["settings"]
    figure.suptitle(
        f"{settings['observations']:,} observations of {settings['days']} simulated days", fontsize=11
    )
    save_picture(figure, path, dpi=130)


def _draw(axes: Axes, values: dict[str, Any], figure: str, title: str, aim: tuple[float, float]) -> None:
    for name, colour in _COLOURS.items():
        spots = [
            (100 * row["achieved"], 100 * row["sides"][name][figure])
            for row in values["shares"]
            if figure in row["sides"][name]
        ]
        if spots:
            axes.plot(*zip(*spots, strict=True), marker="o", color=colour, label=name)
    axes.plot(
        100 * aim[0],
        aim[1],
        marker="_",
        markersize=24,
        markeredgewidth=2,
        color="black",
        linestyle="none",
        label=f"aim: {aim[1]:g} % at {100 * aim[0]:g} %",
    )
    axes.set_xscale("log")
    ticks = [5, 10, 25, 50, 100]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(0, 103)
    axes.set_xlabel("observations kept, %")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
