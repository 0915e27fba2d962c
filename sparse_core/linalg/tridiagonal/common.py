"""Interface of the tridiagonal implementations.

They take ``lower``, ``diagonal``, ``upper`` (S, n) and ``b`` (S, n, k), contiguous, of one dtype, with S, n
and k at least one, and zeros in ``lower[:, 0]`` and ``upper[:, -1]``.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Solution(NamedTuple):
    """Solution ``x`` (S, n, k), and ``zero_pivot`` (S,) int64, row of a zero pivot or -1."""

    x: Tensor
    zero_pivot: Tensor
