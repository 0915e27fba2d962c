"""A drive as a PNG picture: the map, observations over time, and the questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from drive.frames import Place
from drive.questions import Answer
from memory import Memory
from memory.picture import COLOURS, draw_memories
from sparse_core.common.files import replacing

_RIGHT, _WRONG = "tab:green", "tab:red"


@dataclass(frozen=True)
class DriveSummary:
    """Content of the picture.

    Attributes:
        title: of the picture.
        path: of the robot, in metres.
        timeline: (offered, held) after each scan.
        memories: content of the store.
        lost: observations that were not kept.
        places: true objects at the end; empty without ground truth.
        answers: to questions; empty without ground truth.
        trails: labels and trajectories of tracks.
    """

    title: str
    path: Sequence[tuple[float, float]]
    timeline: Sequence[tuple[int, int]]
    memories: Sequence[Memory]
    lost: Sequence[Memory] = ()
    places: Sequence[Place] = ()
    answers: Sequence[Answer] = ()
    trails: Sequence[tuple[str, Sequence[tuple[float, float]]]] = ()


def draw_drive(file: Path, drawn: DriveSummary) -> Path:
    """Write the picture as PNG."""
    figure = plt.figure(figsize=(17, 10), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(1.65, 1), height_ratios=(1, 2.4))
    _map(figure.add_subplot(grid[:, 0]), drawn)
    _timeline(figure.add_subplot(grid[0, 1]), drawn)
    _questions(figure.add_subplot(grid[1, 1]), drawn.answers)
    figure.suptitle(drawn.title)
    with replacing(Path(file)) as temporary:
        figure.savefig(temporary, format="png", dpi=100, bbox_inches="tight")
    plt.close(figure)
    return file


def _map(axes: Axes, drawn: DriveSummary) -> None:
    axes.plot(*np.array(drawn.path).reshape(-1, 2).T, color="0.75", linewidth=1, label="robot")
    _scatter(axes, drawn.lost, label="observed, not kept", marker=".", color="0.8", s=10, zorder=1)
    if drawn.places:
        at = np.array([place.position for place in drawn.places])
        axes.scatter(
            at[:, 0],
            at[:, 1],
            marker="s",
            s=130,
            facecolor="none",
            edgecolor="black",
            label="true object",
            zorder=2,
        )
    for row, (label, way) in enumerate(drawn.trails):
        name = "track" if row == 0 else None
        axes.plot(
            *np.array(way).T, color=COLOURS.get(label, "tab:orange"), linewidth=0.6, alpha=0.6, label=name
        )
    draw_memories(axes, drawn.memories)
    for right, colour in ((True, _RIGHT), (False, _WRONG)):
        at = np.array([a.position for a in drawn.answers if a.right is right and a.position is not None])
        if len(at):
            name = f"{'right' if right else 'wrong'} answer"
            axes.scatter(
                at[:, 0],
                at[:, 1],
                s=330,
                facecolor="none",
                edgecolor=colour,
                linewidth=1.2,
                alpha=0.7,
                label=name,
                zorder=1,
            )
    _frame_of(axes, drawn)
    axes.set(xlabel="x (m)", ylabel="y (m)", aspect="equal")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=4, frameon=False)


def _frame_of(axes: Axes, drawn: DriveSummary) -> None:
    """Limit the axes to everything driven and remembered, without people who walked out of town."""
    at = np.array([*drawn.path, *(memory.position[:2] for memory in drawn.memories)]).reshape(-1, 2)
    if len(at):
        low, high = at.min(axis=0), at.max(axis=0)
        margin = 0.05 * max(float((high - low).max()), 1.0)
        axes.set(xlim=(low[0] - margin, high[0] + margin), ylim=(low[1] - margin, high[1] + margin))


def _scatter(axes: Axes, memories: Sequence[Memory], **style: Any) -> None:
    if memories:
        axes.scatter(*np.array([memory.position[:2] for memory in memories]).T, **style)


def _timeline(axes: Axes, drawn: DriveSummary) -> None:
    counts = np.array(drawn.timeline).reshape(-1, 2)
    axes.plot(counts[:, 0], color="0.5", label="offered")
    axes.plot(counts[:, 1], color="tab:blue", label="held")
    axes.set(xlabel="scan", ylabel="count", title="Observations offered and memories held")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)


def _questions(axes: Axes, answers: Sequence[Answer], most: int = 30) -> None:
    axes.axis("off")
    if not answers:
        axes.text(0, 1, "No ground truth to check answers", va="top")
        return
    right = sum(answer.right for answer in answers)
    shown = some_of_each_kind(answers, most)
    left_out = "" if len(shown) == len(answers) else f"; {len(shown)} are shown"
    axes.set_title(f"{right} of {len(answers)} answers are right{left_out}", loc="left")
    for row, answer in enumerate(shown):
        line = 1 - (row + 0.5) / max(len(shown), 12)
        colour = _RIGHT if answer.right else _WRONG
        axes.text(0, line, "✓" if answer.right else "✗", color=colour, weight="bold", va="center")
        said = answer.said if answer.right else f"{answer.said} (true: {answer.expected})"
        axes.text(0.035, line, f"{answer.text}  {said}", fontsize=8, va="center", clip_on=False)


def some_of_each_kind(answers: Sequence[Answer], most: int) -> list[Answer]:
    """Return at most ``most`` answers, about equally many of each kind, in their order."""
    kinds: dict[str, int] = {}
    turns = []
    for place, answer in enumerate(answers):
        kinds[answer.kind] = kinds.get(answer.kind, 0) + 1
        turns.append((kinds[answer.kind], place))
    return [answers[place] for place in sorted(place for _, place in sorted(turns)[:most])]
