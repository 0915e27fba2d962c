"""Tables of neighbours: which input row each tap of each output row reads.

One layout serves every implementation, on every device: (taps, rows), taps row-major, -1 where there is no
input. Tables of fixed capacity (:mod:`sparse_core.conv.grid`) and of levels on a CPU
(:mod:`sparse_core.conv.convolution.cpu`) are such tensors too, without the way back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class NeighbourTable:
    """Pairs of input and output rows of one sparse convolution, read from either side.

    Holding both directions makes the forward and the gradient gathers followed by one matrix product: no
    atomics, so the result is the same to the bit in every run. A table is made once per level of a network
    and shared by its layers.

    Attributes:
        rows: (K, M) int64: input row under tap k of output row m, -1 where none is active.
        inverse: (K, N) int64: output row that reads input row n through tap k, -1 where none does.
    """

    rows: Tensor
    inverse: Tensor

    @property
    def pairs(self) -> int:
        """Number of (input, output) pairs: the multiply-adds per channel pair."""
        return int((self.inverse >= 0).sum())

    @cached_property
    def reversed(self) -> NeighbourTable:
        """Inputs and outputs exchanged: what gradients and inverse convolutions read."""
        return NeighbourTable(self.inverse, self.rows)

    @cached_property
    def gathered(self) -> Tensor:
        """(M, K) of :func:`gather_rows`, worked out once for all layers."""
        return gather_rows(self.rows, self.inverse.shape[1])


def gather_rows(rows: Tensor, inputs: int) -> Tensor:
    """Rows to gather side by side, from features with a row of zeros behind them.

    Args:
        rows: (K, M) integer rows of a table; -1, or any other number outside of [0, inputs), is missing.
        inputs: N, rows of the features.

    Returns:
        (M, K) contiguous, of the table's type: rows in [0, N]; N where there is no input.
    """
    # Filling by a mask takes four times as long on a CPU.
    side_by_side = torch.stack(tuple(rows.clamp(-1, inputs)), 1)
    return side_by_side.add_(side_by_side < 0, alpha=inputs + 1)
