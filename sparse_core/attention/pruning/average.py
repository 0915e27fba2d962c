"""Moving average of block importance over training steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.attention.pruning.importance import Measure, block_importance, check_measure


class BlockImportance:
    """Bias-corrected moving average of :func:`block_importance` over training steps.

    Non-finite measurements, for example from an overflowing loss scale, are skipped.

    Args:
        momentum: share of the old average that each measurement keeps, in [0, 1).
        block_size, measure: as for :func:`block_importance`.

    Attributes:
        count: measurements so far, including skipped ones.

    Raises:
        ValueError: momentum outside its range, or an unknown measure.
    """

    def __init__(self, momentum: float = 0.9, *, block_size: int = 64, measure: Measure = "score") -> None:
        if not 0.0 <= momentum < 1.0:
            raise ValueError(f"momentum must be at least 0 and below 1, got {momentum}")
        check_measure(measure)
        self.momentum = momentum
        self.block_size = block_size
        self.measure = measure
        self.count = 0
        self._total: Tensor | None = None
        self._weight: Tensor | None = None

    def update(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        out: Tensor,
        grad_out: Tensor,
        lse: Tensor | None = None,
        *,
        scale: float | None = None,
        pattern: BlockPattern | None = None,
        allowed: BlockPattern | None = None,
        key_lengths: Tensor | None = None,
    ) -> None:
        """Measure and add; arguments as for :func:`block_importance`."""
        self.add(
            block_importance(
                q,
                k,
                v,
                out,
                grad_out,
                lse,
                block_size=self.block_size,
                scale=scale,
                pattern=pattern,
                allowed=allowed,
                key_lengths=key_lengths,
                measure=self.measure,
            )
        )

    @torch.no_grad()
    def add(self, measured: Tensor) -> None:
        """Add a measurement (heads, block rows, block columns).

        Raises:
            ValueError: another shape than before.
        """
        if self._total is None or self._weight is None:
            self._total = torch.zeros_like(measured)
            self._weight = measured.new_zeros(())
        if measured.shape != self._total.shape:
            raise ValueError(
                f"importance has shape {tuple(self._total.shape)}, got a measurement of"
                f" {tuple(measured.shape)}: heads and lengths must stay the same"
            )
        self.count += 1
        good = measured.isfinite().all()
        share = 1 - self.momentum
        self._total = torch.where(good, self.momentum * self._total + share * measured, self._total)
        self._weight = torch.where(good, self.momentum * self._weight + share, self._weight)

    def value(self) -> Tensor:
        """Return the average (heads, block rows, block columns); zeros before the first finite measurement.

        Raises:
            ValueError: nothing was added.
        """
        if self._total is None or self._weight is None:
            raise ValueError("no importance was measured: run a forward and a backward pass first")
        return torch.where(self._weight > 0, self._total / self._weight, self._total)

    def state_dict(self) -> dict[str, Any]:
        """Return sums and counts."""
        tensors = {"total": self._total, "weight": self._weight}
        return {
            "count": self.count,
            **{name: None if tensor is None else tensor.clone() for name, tensor in tensors.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any], *, device: torch.device | str | None = None) -> None:
        """Restore the result of :meth:`state_dict`, on ``device`` or where the tensors are."""
        self.count = int(state["count"])
        self._total, self._weight = (
            None if state[name] is None else state[name].to(device, copy=True) for name in ("total", "weight")
        )
