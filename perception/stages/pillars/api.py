"""Points to pillars to pillar features, in steps that a CUDA graph can hold."""

from __future__ import annotations

import torch
from torch import Tensor

from perception.config import PillarConfig
from perception.stages.pillars import reference
from perception.stages.pillars.types import FixedPillars, LocatedPoints, PillarWorkspace
from perception.stages.pillars.weights import EncoderWeights
from sparse_core.conv.grid import grid_from_bits
from sparse_core.conv.grid.layout import FixedGrid
from sparse_core.kernels.op import Impl, Op, by_torch, by_triton

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
PILLARS: Op[()] = Op("pillars", __package__, by_triton(), by_torch(), gradient=False)


def locate_points(
    points: Tensor,
    lengths: Tensor,
    config: PillarConfig,
    *,
    workspace: PillarWorkspace | None = None,
    impl: Impl = "auto",
) -> LocatedPoints:
    """Cell of every point, and which cells hold one. One launch.

    Cells are those of :func:`perception.model.pillars.make_pillars` on a CPU, to the bit.

    Args:
        points: (B, P, 4) float32 x, y, z (metres, LiDAR frame), intensity; contiguous. Points that are NaN,
            infinite or out of range are left out.
        lengths: (B,) int32 points of each frame, on the same device; what lies behind them is ignored.
        config: the grid; its ``max_pillars`` is not looked at.
        workspace: cleared buffers for this grid and number of frames; None: new ones.
        impl: ``"reference"``, ``"triton"`` or ``"auto"``: Triton for CUDA tensors where it is installed.

    Returns:
        Cells, ranks and the filled workspace. The occupancy in ``bits`` gives the rows of the pillars
        (:func:`sparse_core.conv.grid.grid_from_bits` or ``pyramid``); then :func:`sort_points`.

    Raises:
        ValueError: a shape or the workspace does not fit, or the cells do not fit 32 bits.
        TypeError: a wrong dtype.
        ImplementationError: ``impl="triton"`` cannot run here.
    """
    _check_points(points, lengths)
    if workspace is None:
        workspace = PillarWorkspace.make(config, len(points), device=points.device)
    _check_workspace(workspace, points, config)
    located: LocatedPoints = PILLARS.pick(impl, points.device).locate(points, lengths, config, workspace)
    return located


def sort_points(located: LocatedPoints, grid: FixedGrid, *, impl: Impl = "auto") -> FixedPillars:
    """Points pillar by pillar, once rows are known. Two launches; clears what :func:`locate_points` filled.

    Args:
        located: from :func:`locate_points`; its workspace, ``bits`` included, is zero afterwards, so
            :func:`fixed_encode` comes first.
        grid: rows of ``located.bits``. Pillars beyond its capacity have no row: their points are left out.
        impl: as in :func:`locate_points`.

    Raises:
        ValueError: the grid is another one than the workspace's.
        ImplementationError: ``impl="triton"`` cannot run here.
    """
    _check_grid(located, grid)
    pillars: FixedPillars = PILLARS.pick(impl, located.points.device).sort(located, grid)
    return pillars


def fixed_pillars(
    points: Tensor,
    lengths: Tensor,
    config: PillarConfig,
    capacity: int,
    *,
    workspace: PillarWorkspace | None = None,
    impl: Impl = "auto",
) -> FixedPillars:
    """:func:`locate_points`, rows of the pillars, :func:`sort_points`; there are no features between them.

    Args:
        points: (B, P, 4) float32 x, y, z (metres, LiDAR frame), intensity; contiguous.
        lengths: (B,) int32 points of each frame.
        config: the grid.
        capacity: pillars of the whole batch there is room for; the lowest cells are kept, and
            ``grid.active`` beyond it tells how many were left out.
        workspace: as in :func:`locate_points`.
        impl: as in :func:`locate_points`.
    """
    located = locate_points(points, lengths, config, workspace=workspace, impl=impl)
    grid = grid_from_bits(located.bits, config.grid_shape, len(points), capacity, impl=impl)
    return sort_points(located, grid, impl=impl)


def fixed_encode(
    located: LocatedPoints,
    grid: FixedGrid,
    weights: EncoderWeights,
    *,
    dtype: torch.dtype = torch.float16,
    out: Tensor | None = None,
    impl: Impl = "auto",
) -> Tensor:
    """Pillar features: what :class:`~perception.model.encoder.PillarEncoder` gives. Two launches.

    Sums over points run in whole numbers, so the result does not depend on the order of the points, to
    the bit. Sums are float32, and so are products; but with a 16-bit ``dtype`` the pillars' layer multiplies
    what float16 has rounded to 16 bits, or TF32 for bfloat16.

    Args:
        located: from :func:`locate_points`, before :func:`sort_points`.
        grid: rows of ``located.bits``; points of pillars beyond its capacity are left out.
        weights: of an encoder for the same grid.
        dtype: of the features: float16, bfloat16 or float32.
        out: (capacity, C) buffer of this dtype to write into.
        impl: as in :func:`locate_points`.

    Returns:
        (capacity, C) features; undefined from ``grid.count`` on.

    Raises:
        TypeError: another dtype.
        ValueError: ``out`` or the grid does not fit, or Triton would need offsets beyond 32 bits.
        ImplementationError: ``impl="triton"`` cannot run here.
    """
    if dtype not in _DTYPES:
        raise TypeError(f"dtype must be float16, bfloat16 or float32, got {dtype}")
    _check_grid(located, grid)
    shape = (grid.capacity, weights.channels)
    if out is not None and (out.shape != shape or out.dtype != dtype or not out.is_contiguous()):
        raise ValueError(f"out must be {shape}, {dtype} and contiguous, got {tuple(out.shape)}, {out.dtype}")
    if PILLARS.choose(impl, located.points.device) == "triton":
        from perception.stages.pillars import encode_triton

        return encode_triton.encode(located, grid, weights, dtype, out)
    found = reference.encode(located, grid, weights, dtype)
    return found if out is None else out.copy_(found)


def _check_points(points: Tensor, lengths: Tensor) -> None:
    if points.ndim != 3 or points.shape[2] != 4 or len(points) == 0:
        raise ValueError(f"points must have shape (B, P, 4), B at least 1, got {tuple(points.shape)}")
    if lengths.shape != points.shape[:1]:
        raise ValueError(f"lengths must have shape ({len(points)},), got {tuple(lengths.shape)}")
    if points.dtype != torch.float32:
        raise TypeError(f"points must be float32, got {points.dtype}")
    if lengths.dtype != torch.int32:
        raise TypeError(f"lengths must be int32, got {lengths.dtype}")
    if not points.is_contiguous():
        raise ValueError("points must be contiguous")
    if lengths.device != points.device:
        raise ValueError(f"lengths lie on {lengths.device}, points on {points.device}")
    if points.numel() >= 2**31:
        raise ValueError(f"points must hold fewer than 2^29 points, got {points.shape[0] * points.shape[1]}")


def _check_grid(located: LocatedPoints, grid: FixedGrid) -> None:
    workspace = located.workspace
    if (grid.spatial_shape, grid.batch_size) != (workspace.spatial_shape, workspace.batch_size):
        raise ValueError(
            f"grid has {grid.batch_size} frames of {grid.spatial_shape} cells,"
            f" the points were located on {workspace.batch_size} of {workspace.spatial_shape}"
        )


def _check_workspace(workspace: PillarWorkspace, points: Tensor, config: PillarConfig) -> None:
    found = (workspace.spatial_shape, workspace.batch_size, workspace.counts.device)
    wanted = (config.grid_shape, len(points), points.device)
    if found != wanted:
        raise ValueError(f"workspace is for (grid, frames, device) {found}, needed for {wanted}")
