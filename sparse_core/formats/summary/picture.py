"""Pictures of sparse matrices: where the entries are, and how fast each format is."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

from sparse_core.files import replacing
from sparse_core.formats.base import SparseMatrix
from sparse_core.formats.csr import CSR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

#: Pixels of the raster along an axis, at most.
_PIXELS = 400
_TEXT, _FAINT, _FRAME = "#1f2933", "#5f6b7a", "#b8c1cc"
#: From a lone entry to a full pixel; both ends stand out from the white of nothing.
_SHADES = ("#9ecae1", "#4292c6", "#1f5fa8", "#08306b")
_OWN, _CHOSEN, _OTHERS = "#0072b2", "#d55e00", "#a3adb8"


class Raster(NamedTuple):
    """A matrix in pixels.

    Attributes:
        share: (height, width) float64, stored entries of a pixel over its positions.
        rows, cols: positions of the matrix along each side of a pixel.
    """

    share: Tensor
    rows: int
    cols: int


def raster(matrix: SparseMatrix, *, pixels: int = _PIXELS) -> Raster:
    """How densely each part of a matrix is filled; every stored entry counts, a zero too.

    Args:
        matrix: any format; duplicates count once.
        pixels: along an axis, at most; smaller matrices get a pixel for each position.
    """
    if pixels < 1:
        raise ValueError(f"pixels must be at least 1, got {pixels}")
    csr = matrix.to(CSR)
    # Pixels of one whole size: uneven ones would draw stripes that are not in the matrix.
    sides = [max(1, -(-size // pixels)) for size in csr.shape]
    height, width = (-(-size // side) for size, side in zip(csr.shape, sides, strict=True))
    lengths = csr.row_lengths().long()
    row = torch.repeat_interleave(torch.arange(csr.shape[0], device=csr.device) // sides[0], lengths)
    pixel = row * width + csr.col.long() // sides[1]
    counts = torch.bincount(pixel, minlength=height * width).reshape(height, width).cpu()
    positions = [
        (size - torch.arange(count) * side).clamp(max=side)
        for size, side, count in zip(csr.shape, sides, (height, width), strict=True)
    ]
    return Raster(counts.double() / (positions[0][:, None] * positions[1]), *sides)


def spy_picture(matrix: SparseMatrix, path: str | os.PathLike[str], *, title: str | None = None) -> Path:
    """Draw where the entries are as a PNG; large matrices as the density of each pixel.

    Args:
        matrix: any format.
        path: PNG to write; its folder must exist.
        title: heading; None tells shape, entries and sparsity.

    Returns:
        The path.

    Raises:
        ValueError: a dimension is zero.
    """
    rows, cols = matrix.shape
    if not (rows and cols):
        raise ValueError(f"a matrix of shape {matrix.shape} has no positions to draw")
    drawn = raster(matrix)
    figure = _figure(7.2, 6.6)
    axes = figure.add_subplot()
    _draw_raster(figure, axes, drawn, rows, cols)
    heading = f"{rows:,} x {cols:,}, {matrix.nnz:,} entries, {100 * matrix.sparsity:.4g} % sparse"
    axes.set_title(title or heading, loc="left", color=_TEXT, fontsize=12, pad=12)
    axes.set_xlabel("column", color=_FAINT, fontsize=10)
    axes.set_ylabel("row", color=_FAINT, fontsize=10)
    with replacing(Path(path)) as temporary:
        figure.savefig(temporary, format="png")
    return Path(path)


def timing_picture(
    times_ms: Mapping[str, float],
    path: str | os.PathLike[str],
    *,
    title: str,
    chosen: str | None = None,
    others: Collection[str] = (),
) -> Path:
    """Draw one bar for each way of doing the same, fastest on top, as a PNG.

    Args:
        times_ms: milliseconds by name, positive.
        path: PNG to write; its folder must exist.
        title: heading.
        chosen: name to point out.
        others: names drawn in grey, such as another library's.

    Returns:
        The path.

    Raises:
        ValueError: no times, or one that is not positive.
    """
    if not times_ms or not all(time > 0 for time in times_ms.values()):
        raise ValueError(f"times_ms needs positive times, got {dict(times_ms)}")
    names = sorted(times_ms, key=lambda name: times_ms[name])
    times = [times_ms[name] for name in names]
    figure = _figure(8.0, 1.5 + 0.42 * len(names))
    axes = figure.add_subplot()
    colours = [_CHOSEN if name == chosen else _OTHERS if name in others else _OWN for name in names]
    axes.barh(range(len(names)), times, height=0.68, color=colours)
    wide = times[-1] > 30 * times[0]
    if wide:
        axes.set_xscale("log")
        _plain_numbers(axes.xaxis, times[-1] / times[0], "{:g}")
    # Room for the labels at the end of the bars.
    start = times[0] / 3 if wide else 0.0
    axes.set_xlim(start, times[-1] * ((times[-1] / start) ** 0.14 if wide else 1.16))
    for place, (name, time) in enumerate(zip(names, times, strict=True)):
        note = f"  {_milliseconds(time)}{'  (chosen)' if name == chosen else ''}"
        axes.text(time, place, note, va="center", fontsize=10, color=_TEXT)
    axes.set_yticks(range(len(names)), names, color=_TEXT, fontsize=10)
    axes.invert_yaxis()
    axes.set_xlabel(f"median time, ms{' (logarithmic)' if wide else ''}", color=_FAINT, fontsize=10)
    axes.set_title(title, loc="left", color=_TEXT, fontsize=12, pad=12)
    _style(axes, ("bottom",))
    with replacing(Path(path)) as temporary:
        figure.savefig(temporary, format="png")
    return Path(path)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    figure = Figure(figsize=(width, height), dpi=120, layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _style(axes: Axes, sides: Collection[str]) -> None:
    axes.tick_params(which="both", colors=_FAINT, labelsize=9, length=0)
    axes.tick_params(axis="y", labelcolor=_TEXT if "left" not in sides else _FAINT, labelsize=10)
    for side, spine in axes.spines.items():
        spine.set_visible(side in sides)
        spine.set_color(_FRAME)


def _draw_raster(figure: Figure, axes: Axes, drawn: Raster, rows: int, cols: int) -> None:
    from matplotlib.colors import LinearSegmentedColormap, LogNorm
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    share = drawn.share.numpy()
    filled = share[share > 0]
    colours = LinearSegmentedColormap.from_list("density", _SHADES)
    # A pixel may be all that is left of an entry: a plain maximum keeps the scale from collapsing.
    low, high = (filled.min(), filled.max()) if len(filled) else (1.0, 1.0)
    varies = high > low * 1.001
    norm = LogNorm(low, high) if varies else LogNorm(high / 10, high)
    # Long matrices are stretched to a shape that can be looked at.
    aspect: Literal["equal", "auto"] = "equal" if 0.2 < rows / cols < 5 else "auto"
    extent = (0, drawn.share.shape[1] * drawn.cols, drawn.share.shape[0] * drawn.rows, 0)
    masked = drawn.share.masked_fill(drawn.share == 0, float("nan")).numpy()
    image = axes.imshow(
        masked, cmap=colours, norm=norm, aspect=aspect, extent=extent, interpolation="nearest"
    )
    axes.set_xlim(0, cols)
    axes.set_ylim(rows, 0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    _style(axes, ("left", "bottom", "top", "right"))
    if varies:
        bar = figure.colorbar(image, ax=axes, shrink=0.7, aspect=30, pad=0.02)
        _plain_numbers(bar.ax.yaxis, high / low, "{:g} %", 100.0)
        bar.ax.tick_params(which="both", colors=_FAINT, labelsize=9, length=0)
        label = f"filled share of a pixel ({drawn.rows} x {drawn.cols} positions)"
        bar.set_label(label, color=_FAINT, fontsize=10)
        bar.outline.set_visible(False)


def _plain_numbers(axis: Axis, span: float, form: str, factor: float = 1.0) -> None:
    """Label a logarithmic axis with numbers as one writes them; more of them on a short one."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if span < 100 else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: form.format(factor * value)))
    axis.set_minor_locator(NullLocator())


def _milliseconds(time: float) -> str:
    return f"{time:.3g} ms" if time < 1000 else f"{time:,.0f} ms"
