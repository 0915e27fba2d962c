"""Types that the implementations of the convolution share."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Epilogue(NamedTuple):
    """Operations after the sums of a convolution, and destination of its rows; see ``fixed_convolution``."""

    bias: Tensor | None = None
    residual: Tensor | None = None
    residual_rows: Tensor | None = None
    relu: bool = False
    zero_empty: bool = False
    out: Tensor | None = None
    out_rows: Tensor | None = None
