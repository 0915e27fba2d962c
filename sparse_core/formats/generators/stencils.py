"""Matrices of regular structure: stencils on grids, and bands."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch

from sparse_core.formats.base import index_dtype_for
from sparse_core.formats.csr import CSR
from sparse_core.formats.generators.common import Device, normal_values, require_size
from sparse_core.formats.indexing import pointers_from_lengths


def stencil(
    weights: dict[tuple[int, ...], float],
    grid: Sequence[int],
    *,
    dtype: torch.dtype = torch.float32,
    device: Device = "cpu",
) -> CSR:
    """Couple every grid point to the neighbours in a stencil; neighbours outside the grid are dropped.

    Args:
        weights: value by offset along each axis, e.g. ``{(0, 0): 4.0, (0, 1): -1.0}``.
        grid: points along each axis; the last axis is numbered fastest.

    Returns:
        Square CSR, one row per point.

    Raises:
        ValueError: no offset, an offset of the wrong length, or a negative size.
    """
    sizes = [require_size("grid", size) for size in grid]
    if not weights or any(len(offset) != len(sizes) for offset in weights):
        raise ValueError(f"weights need offsets of {len(sizes)} numbers for the grid {tuple(sizes)}")
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.insert(0, strides[0] * size)
    points = strides[0] * sizes[0]
    # Sorted offsets give sorted columns.
    taps = sorted(weights)
    index = index_dtype_for(
        points * len(taps), *(abs(o) * s for t in taps for o, s in zip(t, strides, strict=True))
    )
    point = torch.arange(points, dtype=index, device=device)
    inside = torch.ones(points, len(taps), dtype=torch.bool, device=device)
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        place = torch.div(point, stride, rounding_mode="floor") % max(size, 1)
        for tap, offset in enumerate(taps):
            if offset[axis]:
                inside[:, tap] &= (place >= -offset[axis]) & (place < size - offset[axis])
    steps = [sum(o * s for o, s in zip(tap, strides, strict=True)) for tap in taps]
    col = (point[:, None] + torch.tensor(steps, dtype=index, device=device)).masked_select(inside)
    row_values = torch.tensor([weights[tap] for tap in taps], dtype=dtype, device=device)
    values = row_values.expand(points, -1).masked_select(inside)
    return CSR(pointers_from_lengths(inside.sum(1), index), col, values, (points, points), validate=False)


def poisson_2d(
    rows: int, cols: int | None = None, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
) -> CSR:
    """Return the 5-point Laplace operator on a grid: 4 in the middle, -1 at the neighbours.

    Symmetric positive definite; zero boundary values are eliminated. ``cols`` defaults to ``rows``.
    """
    weights: dict[tuple[int, ...], float] = {
        (0, 0): 4.0,
        (0, 1): -1.0,
        (0, -1): -1.0,
        (1, 0): -1.0,
        (-1, 0): -1.0,
    }
    return stencil(weights, (rows, rows if cols is None else cols), dtype=dtype, device=device)


def poisson_3d(
    depth: int,
    rows: int | None = None,
    cols: int | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    device: Device = "cpu",
) -> CSR:
    """Return the 7-point Laplace operator: 6 in the middle, -1 at the neighbours.

    Omitted sizes equal ``depth``.
    """
    neighbours = [
        tuple(sign * (axis == place) for place in range(3)) for axis in range(3) for sign in (-1, 1)
    ]
    weights = {(0, 0, 0): 6.0, **dict.fromkeys(neighbours, -1.0)}
    return stencil(weights, _three(depth, rows, cols), dtype=dtype, device=device)


def stencil_27(
    depth: int,
    rows: int | None = None,
    cols: int | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    device: Device = "cpu",
) -> CSR:
    """Return the 27-point stencil: 26 in the middle, -1 at the neighbours; sizes default to ``depth``."""
    weights = {offset: 26.0 if not any(offset) else -1.0 for offset in product((-1, 0, 1), repeat=3)}
    return stencil(weights, _three(depth, rows, cols), dtype=dtype, device=device)


def convection_diffusion(
    rows: int,
    cols: int | None = None,
    *,
    velocity: tuple[float, float] = (0.5, 1.0),
    dtype: torch.dtype = torch.float32,
    device: Device = "cpu",
) -> CSR:
    """Return diffusion with first-order upwind transport: a nonsymmetric M-matrix of 5 points.

    Args:
        rows, cols: grid points; ``cols`` defaults to ``rows``.
        velocity: along rows and columns, in units of the diffusion across one cell (cell Péclet numbers).
    """
    weights: dict[tuple[int, ...], float] = {(0, 0): 4.0}
    for axis, speed in enumerate(velocity):
        for sign in (-1, 1):
            # Inflow comes from the side that the velocity points away from.
            inflow = max(0.0, -sign * speed)
            offset = (sign, 0) if axis == 0 else (0, sign)
            weights[offset] = -1.0 - inflow
            weights[0, 0] += inflow
    return stencil(weights, (rows, rows if cols is None else cols), dtype=dtype, device=device)


def banded(
    size: int,
    lower: int = 1,
    upper: int | None = None,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: Device = "cpu",
) -> CSR:
    """Return a square band matrix of normal values.

    It has the main diagonal, ``lower`` diagonals below it and ``upper`` above; ``upper`` defaults to
    ``lower``.
    """
    upper = lower if upper is None else upper
    band = stencil(
        {(offset,): 1.0 for offset in range(-lower, upper + 1)}, (size,), dtype=dtype, device=device
    )
    return band.with_values(normal_values(band.nnz, seed, dtype).to(device))


def diagonal(size: int, *, seed: int = 0, dtype: torch.dtype = torch.float32, device: Device = "cpu") -> CSR:
    """Return a square diagonal matrix of normal values."""
    return banded(size, 0, seed=seed, dtype=dtype, device=device)


def _three(depth: int, rows: int | None, cols: int | None) -> tuple[int, int, int]:
    return depth, depth if rows is None else rows, depth if cols is None else cols
