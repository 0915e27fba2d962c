"""Training curves as a figure."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sparse_core.common.files import replacing

_LOSSES = ("total", "heat", "box", "residual", "fit", "flip", "teacher_heat", "teacher_map")


def plot_curves(log: str | Path, path: str | Path, *, device: str = "") -> Path:
    """Plot losses, learning rate and gradient norm of a ``log.csv`` as a PNG; ``device`` is named in the
    title.
    """
    with Path(log).open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"Training on {device}" if device else "Training")
    losses, rate = figure.subplots(1, 2, width_ratios=(2, 1))
    for name in _LOSSES:
        step, value = _column(rows, name)
        if len(value):
            width = 2.0 if name == "total" else 1.2
            losses.plot(step, _smooth(value), _style(step), label=name, linewidth=width)
    losses.set(xlabel="step", ylabel="loss (moving average)", yscale="log", title="Losses")
    losses.grid(alpha=0.3)
    if rows:
        handles = losses.get_legend_handles_labels()  # Outside, because curves cross every corner.
        figure.legend(*handles, loc="outside lower left", ncols=len(_LOSSES), frameon=False)
    step, value = _column(rows, "learning_rate")
    rate.plot(step, value, _style(step), color="tab:blue")
    rate.set(xlabel="step", title="Schedule and gradient norm")
    rate.set_ylabel("learning rate", color="tab:blue")
    norm = rate.twinx()
    step, value = _column(rows, "gradient_norm")
    norm.plot(step, _smooth(value), _style(step), color="tab:orange", linewidth=1.0)
    norm.set_ylabel("gradient norm", color="tab:orange")
    for axes in (losses, rate):
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    with replacing(Path(path)) as temporary:
        figure.savefig(temporary, format="png", dpi=110, metadata={"Software": None})
    return Path(path)


def _column(rows: list[dict[str, str]], name: str) -> tuple[np.ndarray, np.ndarray]:
    pairs = [(int(row["step"]), float(row[name])) for row in rows if row.get(name)]
    if not pairs:
        return np.zeros(0), np.zeros(0)
    step, value = zip(*pairs, strict=True)
    return np.array(step), np.array(value)


def _style(steps: np.ndarray) -> str:
    """Return the style of a line, with a marker if a single step would leave nothing to see."""
    return "o-" if len(steps) < 2 else "-"


def _smooth(values: np.ndarray, width: int = 15) -> np.ndarray:
    if len(values) < 3:
        return values
    width = min(width, len(values))
    padded = np.pad(values, (width // 2, width - 1 - width // 2), mode="edge")
    return np.convolve(padded, np.ones(width) / width, mode="valid")
