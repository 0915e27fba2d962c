"""What implementations of the convolution share."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Epilogue(NamedTuple):
    """What follows the sums of a convolution, and where its rows go; see ``fixed_convolution``."""

    bias: Tensor | None = None
    residual: Tensor | None = None
    residual_rows: Tensor | None = None
    relu: bool = False
    zero_empty: bool = False
    out: Tensor | None = None
    out_rows: Tensor | None = None
