"""Form of the systems that the implementations share.

Every implementation takes ``lower``, ``diagonal``, ``upper`` (S, n) and ``b`` (S, n, k), contiguous, of one
dtype, with S, n and k at least one, and with zeros in ``lower[:, 0]`` and ``upper[:, -1]``. It returns the
solution (S, n, k) and, for every system, the row of a zero pivot: (S,) int64, -1 where there is none.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Solution(NamedTuple):
    """Attributes: ``x`` (S, n, k); ``zero_pivot`` (S,) int64, row of a zero pivot or -1."""

    x: Tensor
    zero_pivot: Tensor
