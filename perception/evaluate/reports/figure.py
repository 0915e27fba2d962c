"""Figures of evaluations as PNG files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from perception.errors import DataError
from sparse_core.common.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 100


def new_figure(width_px: int, height_px: int) -> Figure:
    """An empty figure of this size."""
    # Imported here: evaluation itself needs no matplotlib. Figure without pyplot leaves the caller's
    # backend and figures alone.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_px / _DPI, height_px / _DPI), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a PNG file; its folder is made if need be.

    Raises:
        DataError: the file cannot be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png")
    except OSError as error:
        raise DataError(f"{path}: cannot write the figure ({error.strerror}); check the folder") from error
    return path
