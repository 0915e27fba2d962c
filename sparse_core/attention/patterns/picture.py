"""Pictures of patterns: the attended share of each part."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from sparse_core.attention.patterns.blocks import PatternBlocks
from sparse_core.attention.patterns.grid import FULL
from sparse_core.common.files import replacing

#: Most pixels along an axis.
_PIXELS = 512
_TEXT, _FAINT, _FRAME = "#1f2933", "#5f6b7a", "#b8c1cc"
#: Colours from a single pair to a full pixel; empty pixels are white.
_SHADES = ("#9ecae1", "#4292c6", "#1f5fa8", "#08306b")


class PatternRaster(NamedTuple):
    """A pattern in pixels.

    Attributes:
        share: (height, width) float64, share of a pixel's existing pairs that is attended, over all heads.
        side: tokens along a side of a pixel.
    """

    share: Tensor
    side: int


def pattern_raster(pattern: PatternBlocks, *, pixels: int = _PIXELS) -> PatternRaster:
    """Count the attended share of each part of a pattern exactly.

    Args:
        pattern: on any device; different heads are counted together.
        pixels: along an axis, at most. A pixel is one token if they fit, else a part of a block or blocks.
    """
    if pixels < 1:
        raise ValueError(f"pixels must be at least 1, got {pixels}")
    size, longest = pattern.block_size, max(pattern.block_rows, pattern.block_columns)
    # Equal pixels that do not straddle blocks; uneven ones would draw false stripes.
    parts = max(
        (part for part in range(1, size + 1) if size % part == 0 and longest * part <= pixels), default=0
    )
    side = size // parts if parts else size * -(-longest // pixels)
    height, width = -(-pattern.query_length // side), -(-pattern.key_length // side)
    _, row, column = pattern.coordinates()
    masks = torch.cat([pattern.token_masks, pattern.grid.inside(pattern.device)])
    cell = min(side, size)
    counts = masks.reshape(len(masks), size // cell, cell, size // cell, cell).sum(dim=(2, 4))
    edge = pattern.grid.edges(row, column) + len(pattern.token_masks)
    mask = torch.where(pattern.partial == FULL, edge, pattern.partial.long())
    # Sum the blocks of all heads by position.
    rows, columns = pattern.block_rows, pattern.block_columns
    canvas = counts.new_zeros((rows * columns, *counts.shape[1:]))
    canvas.index_add_(0, row * columns + column, counts[mask])
    canvas = canvas.reshape(rows, columns, *counts.shape[1:]).transpose(1, 2)
    canvas = canvas.reshape(rows * (size // cell), columns * (size // cell))
    if side > size:
        factor = side // size
        padded = torch.nn.functional.pad(canvas, (0, width * factor - columns, 0, height * factor - rows))
        canvas = padded.reshape(height, factor, width, factor).sum(dim=(1, 3))
    tokens = [
        (length - torch.arange(count) * side).clamp(max=side)
        for length, count in ((pattern.query_length, height), (pattern.key_length, width))
    ]
    pairs = pattern.heads * tokens[0][:, None] * tokens[1]
    return PatternRaster(canvas[:height, :width].cpu().double() / pairs, side)


def pattern_picture(
    pattern: PatternBlocks, path: str | os.PathLike[str], *, title: str | None = None
) -> Path:
    """Draw the attended pairs as a PNG, queries down and keys across; long patterns as shares of a pixel.

    Args:
        pattern: different heads are drawn together, as the share of heads.
        path: PNG to write; its folder must exist.
        title: heading; by default lengths, density and blocks.

    Returns:
        The path.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    raster = pattern_raster(pattern)
    figure = Figure(
        figsize=(7.2, 6.6), dpi=120, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12), facecolor="white"
    )
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    height, width = raster.share.shape
    # Stretch very elongated patterns to a readable shape.
    aspect: Literal["equal", "auto"] = (
        "equal" if 0.2 < pattern.query_length / pattern.key_length < 5 else "auto"
    )
    image = axes.imshow(
        raster.share.masked_fill(raster.share == 0, float("nan")).numpy(),
        cmap=LinearSegmentedColormap.from_list("share", _SHADES),
        norm=Normalize(0.0, 1.0),
        aspect=aspect,
        extent=(0, width * raster.side, height * raster.side, 0),
        interpolation="nearest",
    )
    axes.set_xlim(0, pattern.key_length)
    axes.set_ylim(pattern.query_length, 0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    heading = (
        f"{pattern.query_length:,} x {pattern.key_length:,}, {100 * pattern.density:.3g} % of the pairs,"
        f" {100 * pattern.block_density:.3g} % of the blocks"
    )
    axes.set_title(title or heading, loc="left", color=_TEXT, fontsize=12, pad=12)
    axes.set_xlabel("key", color=_FAINT, fontsize=10)
    axes.set_ylabel("query", color=_FAINT, fontsize=10)
    axes.tick_params(which="both", colors=_FAINT, labelsize=9, length=0)
    for spine in axes.spines.values():
        spine.set_color(_FRAME)
    if bool(((raster.share > 0) & (raster.share < 1)).any()):
        bar = figure.colorbar(image, ax=axes, shrink=0.7, aspect=30, pad=0.02)
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
        bar.ax.tick_params(which="both", colors=_FAINT, labelsize=9, length=0)
        tokens = f"{raster.side} x {raster.side} tokens"
        heads = f" of {pattern.heads} heads" if pattern.heads > 1 else ""
        bar.set_label(f"attended share of a pixel ({tokens}{heads})", color=_FAINT, fontsize=10)
        bar.outline.set_visible(False)
    with replacing(Path(path)) as temporary:
        figure.savefig(temporary, format="png")
    return Path(path)
