"""A layer's weight as the matrix with outputs as rows and inputs as columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

Layout = Literal["rows", "channels_last", "transposed"]
"""Layout of a weight as a matrix.

``"rows"``: outputs first, the rest flattened as stored: Linear, convolutions in unfold order, and the
sparse convolutions (out, *kernel, in). ``"channels_last"``: Conv2d (O, I, kh, kw) as (O, kh kw I), groups
within a tap.
``"transposed"``: ConvTranspose2d (I, O, kh, kw) as (O kh kw, I).
"""


@dataclass(frozen=True)
class MatrixView:
    """A weight of a certain shape as a matrix, and back.

    Args:
        shape: shape of the weight.
        layout: see :data:`Layout`.

    Raises:
        ValueError: an unknown layout, or a shape that it does not fit.
    """

    shape: tuple[int, ...]
    layout: Layout = "rows"

    def __post_init__(self) -> None:
        if self.layout not in get_args(Layout):
            raise ValueError(f"layout must be one of {', '.join(get_args(Layout))}, got {self.layout!r}")
        if len(self.shape) < 2 or not math.prod(self.shape):
            raise ValueError(f"a weight has two or more dimensions and is not empty, got shape {self.shape}")
        if self.layout != "rows" and len(self.shape) != 4:
            raise ValueError(f"layout {self.layout!r} needs a weight of four dimensions, got {self.shape}")

    @property
    def rows(self) -> int:
        """Rows of the matrix."""
        if self.layout == "transposed":
            return math.prod(self.shape[1:])
        return self.shape[0]

    @property
    def columns(self) -> int:
        """Columns of the matrix, the inputs of a row."""
        return math.prod(self.shape) // self.rows

    def to_matrix(self, weight: Tensor) -> Tensor:
        """Return a weight of ``shape`` as (rows, columns); a view if the layout allows it."""
        if self.layout == "channels_last":
            weight = weight.permute(0, 2, 3, 1)
        elif self.layout == "transposed":
            weight = weight.permute(1, 2, 3, 0)
        return weight.reshape(self.rows, self.columns)

    def from_matrix(self, matrix: Tensor) -> Tensor:
        """Undo :meth:`to_matrix`; of some rows only for layouts with outputs first."""
        if self.layout == "transposed":
            channels, out, height, width = self.shape
            return matrix.reshape(out, height, width, channels).permute(3, 0, 1, 2)
        if self.layout == "channels_last":
            _, channels, height, width = self.shape
            return matrix.reshape(len(matrix), height, width, channels).permute(0, 3, 1, 2)
        return matrix.reshape(len(matrix), *self.shape[1:])


def pad_columns(matrix: Tensor, m: int) -> Tensor:
    """Return (rows, columns) with zero or false columns appended up to a multiple of ``m``."""
    missing = -matrix.shape[1] % m
    return torch.nn.functional.pad(matrix, (0, missing)) if missing else matrix
