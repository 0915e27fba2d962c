"""Figures of evaluations as PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from perception.errors import DataError
from perception.evaluate.box_table import Float64Array
from sparse_core.common.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 100
#: Distinguishable with colour vision deficiency.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


class Curve(NamedTuple):
    """Precision over recall.

    Attributes:
        legend: text of the legend.
        recall, precision: (N,) in [0, 1].
        colour, style, width: of the line.
    """

    legend: str
    recall: Float64Array
    precision: Float64Array
    colour: str
    style: str = "-"
    width: float = 1.8


def new_figure(width_px: int, height_px: int) -> Figure:
    """Return an empty figure of this size."""
    # Lazy import, because evaluation itself needs no matplotlib. Figure without pyplot does not change the
    # caller's backend and figures.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_px / _DPI, height_px / _DPI), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a PNG file; missing folders are created.

    Raises:
        DataError: the file cannot be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png")
    except OSError as error:
        raise DataError(f"{path}: cannot write the figure ({error.strerror}). Check the folder") from error
    return path


def draw_curves(
    panels: Sequence[tuple[str, Sequence[Curve]]],
    title: str,
    path: str | Path,
    *,
    columns: int,
    panel_px: tuple[int, int],
    least_width_px: int,
) -> Path:
    """Draw precision-recall curves as a PNG file.

    Args:
        panels: title and curves of each panel.
        title: of the figure.
        path: of the file; missing folders are created.
        columns: most panels per row.
        panel_px: width and height of a panel.
        least_width_px: of the figure.

    Raises:
        DataError: the file cannot be written.
    """
    columns = max(1, min(columns, len(panels)))
    rows = max(1, -(-len(panels) // columns))
    figure = new_figure(max(least_width_px, columns * panel_px[0]), rows * panel_px[1])
    places = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for place in places[len(panels) :]:
        place.set_axis_off()
    for place, (name, curves) in zip(places, panels, strict=False):
        for curve in curves:
            place.plot(
                curve.recall,
                curve.precision,
                curve.style,
                color=curve.colour,
                linewidth=curve.width,
                label=curve.legend,
            )
        place.set_title(name, fontsize=10)
        place.set_xlabel("recall")
        place.set_xlim(0, 1)
        place.set_ylim(0, 1.02)
        place.grid(alpha=0.3)
    if panels:
        places[0].set_ylabel("precision")
        handles, labels = places[0].get_legend_handles_labels()
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=max(1, len(labels)),
            handlelength=3.0,
            frameon=False,
        )
    figure.suptitle(title, fontsize=13)
    return save_figure(figure, path)
