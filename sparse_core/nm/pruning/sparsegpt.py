"""One-shot n:m pruning in which the kept weights compensate for the dropped ones."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.nm.masks import nm_mask
from sparse_core.nm.pattern import NMPattern, check_groups, weight_from_matrix, weight_matrix
from sparse_core.nm.pruning.scores import score_dtype

# Number of retries of a failed factorisation, each with ten times the damping.
RETRIES = 8
# Damping of the first retry if 0 was requested.
LEAST_DAMPING = 1e-6


class CalibrationWarning(UserWarning):
    """Calibration inputs did not determine the weights; the message gives the fallback."""


class SparseGPTResult(NamedTuple):
    """Result of :func:`sparsegpt`.

    Attributes:
        weight: zero where ``mask`` is false, of the input's shape and type.
        mask: bool, exactly n true per group.
        damping_used: share of the mean diagonal that was added to the Hessian.
        attempts: number of factorisations tried.
        loss: () mean over input rows of the squared change of the layer's output, float64.
    """

    weight: Tensor
    mask: Tensor
    damping_used: float
    attempts: int
    loss: Tensor


def sparsegpt(
    weight: Tensor,
    hessian: Tensor,
    pattern: NMPattern,
    *,
    damping: float = 0.01,
    block_size: int = 128,
    rows: int | None = None,
    name: str = "weight",
) -> SparseGPTResult:
    """Prune ``weight`` to n:m; after each column the remaining columns compensate for its error.

    Frantar, Alistarh, "SparseGPT: Massive Language Models Can Be Accurately Pruned in One-Shot", ICML 2023,
    algorithm 1 with the n:m rule of section 3.4: each group keeps the n weights of largest w²/[U]ⱼⱼ², where
    UᵀU is the inverse Hessian and U upper triangular. Inputs that are always zero do not determine their
    weights: these are dropped first, by magnitude, and keep their values if a group has room for them.

    Args:
        weight: (out, in) or (out, in, kernel height, kernel width).
        hessian: (columns, columns) in unfold order, see ``InputStatistics.hessian``.
        pattern: n, m and the column order of a convolution.
        damping: share of the mean diagonal added to the diagonal.
        block_size: columns between updates of all later ones, rounded to a multiple of m; affects only
            rounding.
        rows: number of inputs behind the Hessian, to warn if they are too few.
        name: name of the layer in errors and warnings.

    Returns:
        See :class:`SparseGPTResult`. Computed in float32, or float64 if weight or Hessian has it.

    Raises:
        TypeError: ``pattern`` is not n:m.
        ValueError: sizes that do not fit, values that are not finite, negative ``damping``, or a Hessian that
            cannot be factored with any damping tried.

    Warns:
        CalibrationWarning: more than ``damping`` was needed, there are fewer ``rows`` than non-zero inputs,
            or a group has to keep weights of inputs that are always zero.
    """
    matrix, second = _checked_matrices(weight, hessian, pattern, damping, name)
    dead = second.diagonal() == 0
    _check_calibration(matrix, dead, rows, pattern, name)
    upper, used, attempts = _inverse_factor(second, dead, damping, name)
    size = max(1, block_size // pattern.m) * pattern.m
    pruned, mask = _sweep(matrix, upper, dead, pattern, size)
    result = pruned.to(weight.dtype)
    change = (matrix - result.to(matrix.dtype)).to(torch.float64)
    loss = ((change @ second.to(torch.float64)) * change).sum() / 2
    shape = tuple(weight.shape)
    return SparseGPTResult(
        weight_from_matrix(result, shape, pattern.conv_layout).contiguous(),
        weight_from_matrix(mask, shape, pattern.conv_layout).contiguous(),
        used,
        attempts,
        loss,
    )


def _checked_matrices(
    weight: Tensor, hessian: Tensor, pattern: NMPattern, damping: float, name: str
) -> tuple[Tensor, Tensor]:
    """Return matrix and Hessian in the pattern's column order and the type of the computation."""
    if not isinstance(pattern, NMPattern):
        raise TypeError(f"SparseGPT prunes to n:m patterns, got {pattern!r} for {name}")
    if damping < 0:
        raise ValueError(f"damping must be at least 0, got {damping}")
    matrix = weight_matrix(weight.detach(), pattern.conv_layout, name=name)
    columns = matrix.shape[1]
    check_groups(columns, pattern.m, name=name)
    if tuple(hessian.shape) != (columns, columns):
        raise ValueError(
            f"the Hessian of {name} must have shape {(columns, columns)}, got {tuple(hessian.shape)}"
        )
    dtype = torch.promote_types(score_dtype(weight), score_dtype(hessian))
    second = hessian.detach().to(weight.device, dtype)
    for what, tensor in ((f"{name}", matrix), (f"the Hessian of {name}", second)):
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"{what} has values that are not finite")
    if weight.ndim == 4:
        places = torch.arange(columns, device=weight.device).reshape(1, *weight.shape[1:])
        order = weight_matrix(places, pattern.conv_layout)[0]
        second = second[order][:, order]
    return matrix.to(dtype), second


def _inverse_factor(hessian: Tensor, dead: Tensor, damping: float, name: str) -> tuple[Tensor, float, int]:
    """Return upper U with UᵀU the inverse of the damped Hessian, the damping, and the attempts."""
    columns = len(hessian)
    live = hessian.diagonal()[~dead]
    mean = live.mean() if len(live) else torch.ones((), dtype=hessian.dtype, device=hessian.device)
    filled = hessian + torch.diag(dead.to(hessian.dtype) * mean)
    tried = damping
    for attempt in range(1, RETRIES + 2):
        damped = filled + torch.diag((tried * mean).expand(columns))
        # H = R Rᵀ with R upper is the Cholesky factorisation with rows and columns reversed; U = R⁻¹.
        lower, failed = torch.linalg.cholesky_ex(damped.flip(0, 1))
        if not bool(failed):
            identity = torch.eye(columns, dtype=hessian.dtype, device=hessian.device)
            upper = torch.linalg.solve_triangular(lower.flip(0, 1), identity, upper=True)
            if bool(upper.isfinite().all()):
                if attempt > 1:
                    _warn(name, damping, tried, attempt)
                return upper, tried, attempt
        last, tried = tried, max(10 * tried, LEAST_DAMPING)
    raise ValueError(
        f"the Hessian of {name} could not be factored with damping from {damping:g} to {last:g}: calibrate"
        " with more or other inputs, or prune this layer by another score"
    )


def _check_calibration(matrix: Tensor, dead: Tensor, rows: int | None, pattern: NMPattern, name: str) -> None:
    """Warn if the calibration inputs leave weights undetermined."""
    columns, count = len(dead), int(dead.sum())
    if rows is not None and rows < columns - count:
        warnings.warn(
            f"the calibration of {name} has {rows} input rows, fewer than its {columns - count} inputs that"
            " are not always zero: SparseGPT fits the kept weights to these rows alone. Calibrate with at"
            f" least {columns - count} rows, better {10 * columns}",
            CalibrationWarning,
            stacklevel=3,
        )
    # Columns without weights are padding.
    filled = (matrix != 0).any(dim=0)
    count = int((dead & filled).sum())
    short = (~dead).reshape(-1, pattern.m).sum(dim=1) < pattern.n
    undecided = int((short & (dead & filled).reshape(-1, pattern.m).any(dim=1)).sum())
    if undecided:
        warnings.warn(
            f"{count} of {columns} inputs of {name} are zero in all calibration rows: {undecided} of"
            f" {columns // pattern.m} groups keep weights of such inputs, chosen by magnitude. Calibrate with"
            " more or other inputs",
            CalibrationWarning,
            stacklevel=3,
        )


def _warn(name: str, damping: float, used: float, attempts: int) -> None:
    warnings.warn(
        f"the Hessian of {name} is not positive definite with damping {damping:g}: SparseGPT used {used:g},"
        f" at attempt {attempts}",
        CalibrationWarning,
        stacklevel=4,
    )


def _sweep(
    matrix: Tensor, upper: Tensor, dead: Tensor, pattern: NMPattern, size: int
) -> tuple[Tensor, Tensor]:
    """Prune the columns in blocks of ``size``; returns the pruned matrix and its mask."""
    left = matrix.clone()
    pruned = torch.zeros_like(matrix)
    mask = torch.zeros_like(matrix, dtype=torch.bool)
    columns = matrix.shape[1]
    for begin in range(0, columns, size):
        end = min(begin + size, columns)
        block, factor = left[:, begin:end].clone(), upper[begin:end, begin:end]
        errors = torch.zeros_like(block)
        for column in range(end - begin):
            if column % pattern.m == 0:
                group = slice(column, column + pattern.m)
                score = (block[:, group] / factor.diagonal()[group]).square()
                # Weights of inputs that are always zero rank after all others, the largest first.
                unknown = -1 / (1 + block[:, group].abs())
                score = torch.where(dead[begin + column : begin + column + pattern.m], unknown, score)
                mask[:, begin + column : begin + column + pattern.m] = nm_mask(
                    score, pattern.n, pattern.m, score, check_nan=False
                )
            current = block[:, column]
            kept = current.masked_fill(~mask[:, begin + column], 0)
            pruned[:, begin + column] = kept
            errors[:, column] = (current - kept) / factor[column, column]
            block[:, column:] -= errors[:, column, None] * factor[column, column:]
        left[:, end:] -= errors @ upper[begin:end, end:]
    return pruned, mask
