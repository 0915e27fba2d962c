"""Picture of a month of observations: positions, counts per day, and search times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from drive.frames import DAY_NS, START_NS
from drive.report.picture import COLOURS
from memory import Memory
from sparse_core.common.files import replacing


def draw_month(
    file: Path,
    title: str,
    path: Sequence[tuple[float, float]],
    memories: Sequence[Memory],
    found: dict[str, Any],
) -> Path:
    """Write the picture as PNG.

    Args:
        file: to write.
        title: of the picture.
        path: of the robot, metres.
        memories: content of the store.
        found: from :func:`drive.observations.found_again`.
    """
    figure = plt.figure(figsize=(16, 8), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(1.7, 1))
    things = [memory for memory in memories if memory.kind == "object"]
    _map(figure, figure.add_subplot(grid[:, 0]), path, things)
    _days(figure.add_subplot(grid[0, 1]), things)
    _times(figure.add_subplot(grid[1, 1]), found)
    figure.suptitle(title)
    with replacing(Path(file)) as temporary:
        figure.savefig(temporary, format="png", dpi=90)
    plt.close(figure)
    return file


def _map(figure: Any, axes: Axes, path: Sequence[tuple[float, float]], things: Sequence[Memory]) -> None:
    at = np.array([memory.position[:2] for memory in things]).reshape(-1, 2)
    # Shuffle, so that no day hides the others.
    order = np.random.default_rng(0).permutation(len(at))
    drawn = axes.scatter(*at[order].T, c=_day(things)[order], s=4, cmap="viridis", linewidths=0)
    axes.plot(*np.array(path).reshape(-1, 2).T, color="0.3", linewidth=0.3, label="trajectory of the robot")
    figure.colorbar(
        drawn, ax=axes, label="day", shrink=0.6, ticks=MaxNLocator(6, integer=True, min_n_ticks=1)
    )
    axes.set_aspect("equal")
    axes.set_xlabel("x (m)")
    axes.set_ylabel("y (m)")
    axes.set_title("observations of objects")
    axes.legend(loc="upper right", framealpha=0.9)


def _days(axes: Axes, things: Sequence[Memory]) -> None:
    days, labels = _day(things), np.array([memory.label for memory in things])
    edges = np.arange(days.max(initial=0) + 2) - 0.5
    kinds = sorted(set(labels.tolist()), key=lambda label: -int((labels == label).sum()))
    axes.hist(
        [days[labels == label] for label in kinds],
        bins=edges.tolist(),
        stacked=True,
        rwidth=0.9,
        label=kinds,
        color=[COLOURS.get(label, "0.5") for label in kinds],
    )
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    axes.set_xlabel("day")
    axes.set_ylabel("observations")
    axes.set_title("observations per day")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _times(axes: Axes, found: dict[str, Any]) -> None:
    names = [str(found["index"]["index"] or "compared"), "brute force"]
    spent = [found["ms"][side] for side in ("index", "compared")]
    middle = [one["median"] for one in spent]
    error = [
        [one["median"] - one["lower_quartile"] for one in spent],
        [one["upper_quartile"] - one["median"] for one in spent],
    ]
    axes.barh(names, middle, xerr=error, color=["tab:blue", "0.6"], capsize=4)
    for row, value in enumerate(middle):
        axes.annotate(f"{value:.2f} ms ", (value / 2, row), va="center", ha="center")
    axes.invert_yaxis()
    axes.set_xlabel(f"ms per search on a CPU, {found['asked']} searches (bar: median, line: quartiles)")
    axes.set_title(f"recall@{found['k']} in {found['vectors']:,} embeddings: {found['recall']:.1%}")


def _day(things: Sequence[Memory]) -> np.ndarray[Any, Any]:
    return np.array([(memory.time_ns - START_NS) // DAY_NS for memory in things], np.int64)
