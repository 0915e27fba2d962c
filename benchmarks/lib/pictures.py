"""Pictures of results."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image


def save_picture(figure: Figure, path: Path, *, dpi: int = 120) -> None:
    """Write a figure as a PNG of few colours; folders are made as needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png", dpi=dpi)
    reduce_colours(path)


def reduce_colours(path: Path) -> None:
    """Rewrite a picture with 256 colours.

    It stays in the repository, and is three times as large with all colours.
    """
    with Image.open(path) as picture:
        reduced = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    reduced.save(path, "PNG", optimize=True)
