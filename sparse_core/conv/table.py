"""Tables of neighbours: the input row that each tap of each output row reads.

Every implementation on every device uses one layout: (taps, rows), taps row-major, -1 for no input. Tables of
fixed capacity (:mod:`sparse_core.conv.grid`) and of levels on a CPU (:mod:`sparse_core.conv.convolution.cpu`)
have the same layout, without the inverse.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class NeighbourTable:
    """Pairs of input and output rows of one sparse convolution, in both directions.

    With both directions, forward and gradient are gathers and one matrix product without atomics, so results
    are bitwise reproducible. The layers of a level share one table.

    Attributes:
        rows: (K, M) int64: input row under tap k of output row m, -1 if none is active.
        inverse: (K, N) int64: output row that reads input row n through tap k, -1 if none does.
    """

    rows: Tensor
    inverse: Tensor

    @property
    def pairs(self) -> int:
        """Number of (input, output) pairs: the multiply-adds per channel pair."""
        return int((self.inverse >= 0).sum())

    @cached_property
    def reversed(self) -> NeighbourTable:
        """Table with inputs and outputs exchanged, for gradients and inverse convolutions."""
        return NeighbourTable(self.inverse, self.rows)

    @cached_property
    def gathered(self) -> Tensor:
        """Result (M, K) of :func:`gather_rows`, cached for all layers."""
        return gather_rows(self.rows, self.inverse.shape[1])


def gather_rows(rows: Tensor, inputs: int) -> Tensor:
    """Return rows to gather side by side from features with a row of zeros at the end.

    Args:
        rows: (K, M) integer rows of a table; -1, or any other number outside of [0, inputs), is missing.

    Returns:
        (M, K) contiguous, of the table's type: rows in [0, N]; N for a missing input.
    """
    # masked_fill would take four times as long on a CPU.
    side_by_side = torch.stack(tuple(rows.clamp(-1, inputs)), 1)
    return side_by_side.add_(side_by_side < 0, alpha=inputs + 1)
