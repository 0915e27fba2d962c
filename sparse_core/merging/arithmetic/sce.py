"""SCE: select the positions of largest variance, weigh models by their change, elect signs.

Wan et al., "FuseChat: Knowledge Fusion of Chat Models", 2024, section 3.2: select, calculate, erase.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sparse_core.merging.arithmetic.pieces import Delta, compute_dtype, piece_size, spans
from sparse_core.merging.arithmetic.sums import require_fit
from sparse_core.merging.arithmetic.thresholds import Threshold, magnitude_threshold


class _Variance(Delta):
    """Population variance over models at each position, with the interface of a delta."""

    def __init__(self, deltas: Sequence[Delta]) -> None:
        super().__init__(
            deltas[0].values, label=deltas[0].label, dtype=compute_dtype(*(d.values for d in deltas))
        )
        self.deltas = deltas
        # Marks the numbers as computed, so that nothing uses ``values`` instead.
        self.base = self.values
        size = min(self.count, piece_size(self.device))
        self.rows = torch.empty(len(deltas), size, dtype=self.dtype, device=self.device)

    def read(self, start: int, stop: int, out: Tensor) -> Tensor:
        if stop - start > self.rows.shape[1]:
            self.rows = torch.empty(len(self.deltas), stop - start, dtype=self.dtype, device=self.device)
        found = [delta.read(start, stop, row) for delta, row in zip(self.deltas, self.rows, strict=True)]
        for delta, row in zip(self.deltas, found, strict=True):
            delta.require_finite(row)
        return _variance(torch.stack(found), out[: stop - start])

    def sample(self, count: int) -> Tensor:
        found = torch.stack([delta.sample(count).to(self.dtype) for delta in self.deltas])
        return _variance(found, torch.empty_like(found[0]))


def _variance(rows: Tensor, out: Tensor) -> Tensor:
    middle = rows.mean(dim=0)
    return torch.mean((rows - middle).square_(), dim=0, out=out)


def fuse_tensor(
    base: Tensor, deltas: Sequence[Delta], select_topk: float, out: Tensor, *, name: str = ""
) -> None:
    """Write the base plus the fused deltas to ``out``.

    ``select_topk`` is the share of the varying positions to keep, those of largest variance; the first ones
    among equals. ``name`` names the tensor in errors.
    """
    count, device = deltas[0].count, out.device
    if not count:
        return
    selected = _select(deltas, select_topk)
    dtype = compute_dtype(base, *(delta.values for delta in deltas))
    squares = torch.zeros(len(deltas), dtype=torch.float64, device=device)
    flat, merged, size = base.detach().reshape(-1), out.view(-1), piece_size(device)
    for start, stop in spans(0, count, size):
        rows = _rows(deltas, selected, start, stop, dtype)
        squares += torch.stack([(row * row).sum(dtype=torch.float64) for row in rows])
    squares /= count
    total = squares.sum()
    weights = squares / total if float(total) >= 1e-6 else torch.full_like(squares, 1 / len(deltas))
    for start, stop in spans(0, count, size):
        rows = _rows(deltas, selected, start, stop, dtype)
        majority = torch.where(rows.sum(dim=0) >= 0, 1, -1)
        kept = weights[:, None].to(dtype) * (rows.sign() == majority)
        fused = (rows * kept).sum(dim=0) / kept.sum(dim=0).clamp_min(1e-6)
        merged[start:stop].copy_(fused.add_(flat[start:stop]))
        require_fit(fused, merged.dtype, (), flat, name)


def _select(deltas: Sequence[Delta], share: float) -> tuple[Delta, Threshold] | None:
    """Return the variance and the threshold above which positions are kept; None to keep all."""
    if share >= 1:
        return None
    variance = _Variance(deltas)
    buffer = variance.buffer()
    varying = sum(
        int(torch.count_nonzero(variance.read(start, stop, buffer)))
        for start, stop in spans(0, variance.count, piece_size(variance.device))
    )
    return variance, magnitude_threshold(variance, int(varying * share))


def _rows(
    deltas: Sequence[Delta],
    selected: tuple[Delta, Threshold] | None,
    start: int,
    stop: int,
    dtype: torch.dtype,
) -> Tensor:
    """Return the deltas (models, numbers), zero at positions that are not selected."""
    rows = torch.empty(len(deltas), stop - start, dtype=dtype, device=deltas[0].device)
    for delta, row in zip(deltas, rows, strict=True):
        delta.require_finite(delta.read(start, stop, row))
    if selected is None:
        return rows
    variance, threshold = selected
    kept = threshold.apply(variance.read(start, stop, torch.empty_like(rows[0], dtype=variance.dtype)), start)
    return rows.mul_(kept != 0)
