"""Picture of residual histories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparse_core.common.files import replacing
from sparse_core.linalg.krylov.result import SolveResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Okabe and Ito's palette for colour-blind readers, without yellow, which is too faint on white.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#5b5b5b")
_TEXT, _FAINT, _GRID = "#1f2933", "#5f6b7a", "#e4e8ee"
_FONT = "DejaVu Sans"


def save_convergence_picture(
    results: Mapping[str, SolveResult], path: str | Path, *, title: str | None = None
) -> Path:
    """Draw ``‖b - A x‖`` over the iterations of one or more solves as a PNG, on a logarithmic axis.

    Args:
        results: results by name; for several right-hand sides every column is drawn faintly.
        path: PNG to write; its folder must exist.
        title: heading; by default the system's size.

    Returns:
        The path.

    Raises:
        ValueError: no results.
    """
    if not results:
        raise ValueError("results is empty: pass at least one result")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.2), dpi=120, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _style(axes)
    floor = _smallest(results) / 10
    for index, (name, result) in enumerate(results.items()):
        earlier = list(results.values())[:index]
        # Dashes keep an equal history below visible.
        dashed = any(_coincide(result, other) for other in earlier)
        _draw(axes, name, result, _COLOURS[index % len(_COLOURS)], floor, (0, (4, 4)) if dashed else "-")
    _draw_tolerances(axes, results)
    size = len(next(iter(results.values())).x)
    axes.set_title(title or f"Convergence, {size:,} unknowns", loc="left", color=_TEXT, fontsize=13, pad=14)
    inside = len(results) == 1
    place = {"loc": "upper right"} if inside else {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}
    legend = axes.legend(frameon=False, fontsize=10, **place)
    for text in legend.get_texts():
        text.set_color(_TEXT)
        text.set_fontfamily(_FONT)
    with replacing(Path(path)) as temporary:
        figure.savefig(temporary, format="png")
    return Path(path)


def _style(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_yscale("log")
    axes.set_xlabel("iteration", color=_FAINT, fontsize=10)
    axes.set_ylabel("residual norm ‖b − A x‖", color=_FAINT, fontsize=10)
    axes.grid(True, which="major", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=_FAINT, labelsize=9, length=0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True, steps=[1, 2, 5, 10]))
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color("#b8c1cc")


def _draw(axes: Axes, name: str, result: SolveResult, colour: str, floor: float, style: Any) -> None:
    for column in result.columns:
        norms = _drawable(column, floor)
        axes.plot(np.arange(len(norms)), norms, color=colour, linewidth=0.8, alpha=0.35)
    norms = _drawable(result, floor)
    steps = np.arange(len(norms))
    ending = "" if result.converged else f"\n{_short(result.reason)}"
    label = f"{name}: {result.iterations} iterations{ending}"
    axes.plot(steps, norms, color=colour, linewidth=1.9, linestyle=style, label=label)
    if len(norms):
        # Mark the end with a disc if it converged, else with a cross.
        marker, size = ("o", 6) if result.converged else ("X", 9)
        axes.plot(steps[-1:], norms[-1:], marker, color=colour, markersize=size, markeredgecolor="white")


def _draw_tolerances(axes: Axes, results: Mapping[str, SolveResult]) -> None:
    """Draw one line for a shared tolerance, else one per colour."""
    tolerances = [result.tolerance for result in results.values()]
    shared = max(tolerances) <= min(tolerances) * (1 + 1e-9)
    for index, tolerance in enumerate(tolerances[:1] if shared else tolerances):
        if tolerance > 0 and np.isfinite(tolerance):
            colour = _FAINT if shared else _COLOURS[index % len(_COLOURS)]
            label = f"tolerance {tolerance:.2g}" if shared else None
            axes.axhline(
                tolerance, color=colour, linewidth=1.1, linestyle=(0, (5, 4)), label=label, zorder=1.5
            )


def _coincide(one: SolveResult, other: SolveResult) -> bool:
    """True if two histories look equal in a picture."""
    if len(one.residuals) != len(other.residuals):
        return False
    return bool(np.allclose(one.residuals, other.residuals, rtol=0.15, atol=0, equal_nan=True))


def _drawable(result: SolveResult, floor: float) -> np.ndarray:
    """Return norms for a logarithmic axis: zero at the floor, gaps for non-finite ones."""
    norms = np.asarray(result.residuals, dtype=np.float64)
    return np.where(np.isfinite(norms), np.maximum(norms, floor), np.nan)


def _smallest(results: Mapping[str, SolveResult]) -> float:
    """Return the smallest positive number to draw."""
    numbers = [number for result in results.values() for number in (*result.residuals, result.tolerance)]
    return min((number for number in numbers if number > 0 and np.isfinite(number)), default=1.0)


def _short(reason: str) -> str:
    kind = reason.partition(":")[0].replace("_", " ")
    return f"({kind})"
