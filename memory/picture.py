"""Map pictures of memories, from above."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from memory.types import AWAY, Memory
from sparse_core.common.files import replacing

#: Colours of the labels of the shipped detector. Other labels use _FURTHER in alphabetical order.
COLOURS = {"Car": "tab:blue", "Pedestrian": "tab:green", "Cyclist": "tab:purple"}
_FURTHER = ("tab:brown", "tab:cyan", "tab:olive", "tab:gray")
_GONE = "tab:red"


def draw_map(file: Path | IO[bytes], memories: Sequence[Memory], *, title: str) -> None:
    """Write a PNG of the memories of one map: objects by label, gone objects, trajectories, places.

    Args:
        file: output; missing folders are created.
        memories: of one map, positions in metres. Without memories the map is empty.
        title: title of the picture.
    """
    figure = Figure(figsize=(9, 8))
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    draw_memories(axes, memories)
    axes.set(xlabel="x in metres", ylabel="y in metres", aspect="equal", title=title)
    handles, names = axes.get_legend_handles_labels()
    if handles:
        axes.legend(handles, names, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    if isinstance(file, Path):
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as temporary:
            _save(figure, temporary)
    else:
        _save(figure, file)


def _save(figure: Figure, file: Path | IO[bytes]) -> None:
    # Omit the library version, so that equal memories give equal bytes.
    figure.savefig(file, format="png", dpi=100, bbox_inches="tight", metadata={"Software": None})


def draw_memories(axes: Axes, memories: Sequence[Memory]) -> None:
    """Draw memories of one map into axes, in metres."""
    for row, memory in enumerate(memory for memory in memories if memory.payload.get("way")):
        way = [(x, y) for _, x, y in memory.payload["way"]]
        name = None if row else "trajectory"
        axes.plot(*np.array(way).T, color="tab:pink", linewidth=1.6, label=name)
        if len(way) > 1:
            axes.annotate("", way[-1], way[-2], arrowprops={"arrowstyle": "->", "color": "tab:pink"})
    places = [memory for memory in memories if memory.kind == "place"]
    _scatter(axes, places, label="place", marker="+", color="tab:orange", s=25, zorder=2)
    things = [memory for memory in memories if memory.kind == "object"]
    further = iter(sorted({memory.label for memory in things} - set(COLOURS)))
    colours = COLOURS | {label: _FURTHER[row % len(_FURTHER)] for row, label in enumerate(further)}
    for label in sorted({memory.label for memory in things}):
        there = [memory for memory in things if memory.label == label and memory.state not in AWAY]
        name = label.lower() or "object"
        _scatter(axes, there, label=name, marker="o", color=colours[label], s=38, zorder=3)
    for state, name, marker in (("gone", "gone", "x"), ("moved", "moved away", "1")):
        left = [memory for memory in things if memory.state == state]
        _scatter(axes, left, label=name, marker=marker, color=_GONE, s=34, zorder=3)


def _scatter(axes: Axes, memories: Sequence[Memory], **style: Any) -> None:
    """Draw memories that have a position."""
    points = [memory.position[:2] for memory in memories if memory.position is not None]
    if points:
        axes.scatter(*np.array(points).T, **style)
