"""Measurements of columns in C++, equal to those of numpy bit for bit."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_core.columns.common import FEW_CELLS, GROUND_M, NOT_FINITE, CellGrid, MeasuredColumns
from sparse_core.kernels.native import BackgroundLibrary

_NUMBER, _REAL, _POINTER = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
COLUMNS = BackgroundLibrary(
    Path(__file__).with_name("columns.cpp"),
    {
        "measure_columns": (
            _NUMBER,
            [_POINTER, *[_NUMBER] * 2, _REAL, _NUMBER, _POINTER, *[_REAL] * 2, *[_POINTER] * 3],
        )
    },
    "columns are measured with arrays",
)


def measure_compiled(given: NDArray[Any], grid: CellGrid) -> MeasuredColumns | None:
    """Measure the columns of points as numpy does, or return None if the compiled code cannot run."""
    library = COLUMNS.library()
    fits = given.dtype == np.float32 and given.flags.c_contiguous and grid.width**2 <= FEW_CELLS
    if library is None or not fits:
        return None
    cells = np.arange(grid.width**2)
    near = grid.near(cells)
    found = MeasuredColumns(np.empty(len(cells)), np.empty(len(cells), np.int64), np.empty((6, len(cells))))
    failed = library.measure_columns(
        given.ctypes.data, *given.shape, grid.cell_m, grid.reach, near.ctypes.data, grid.least_height_m,
        GROUND_M, *(part.ctypes.data for part in found),
    )  # fmt: skip
    if failed:
        raise ValueError(NOT_FINITE)
    return found
