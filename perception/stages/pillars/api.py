"""Points to pillars to pillar features with fixed shapes, for CUDA graphs."""

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
    """Find the cell of every point and the occupied cells, in one launch.

    Cells equal those of :func:`perception.model.pillars.make_pillars` on a CPU, bit for bit.

    Args:
        points: (B, P, C) float32 x, y, z (metres, LiDAR frame), intensity, and for several sweeps the age;
            contiguous. C is ``config.columns``. Points that are NaN, infinite or out of range are ignored.
        lengths: (B,) int32 points of each frame, on the same device; further points are ignored.
        config: grid; its ``max_pillars`` is ignored.
        workspace: cleared buffers for this grid and batch size; None: new ones.
        impl: ``"reference"``, ``"triton"`` or ``"auto"``: Triton for CUDA tensors if installed.

    Returns:
        Cells, ranks and the filled workspace. Make the rows of the pillars from ``bits`` with
        :func:`sparse_core.conv.grid.grid_from_bits` or ``pyramid``, then call :func:`sort_points`.

    Raises:
        ValueError: wrong shapes, another workspace, or more cells than 32 bits.
        TypeError: wrong dtype.
        ImplementationError: ``impl="triton"`` cannot run here.
    """
    _check_points(points, lengths, config.columns)
    if workspace is None:
        workspace = PillarWorkspace.make(config, len(points), device=points.device)
    _check_workspace(workspace, points, config)
    located: LocatedPoints = PILLARS.pick(impl, points.device).locate(points, lengths, config, workspace)
    return located


def sort_points(located: LocatedPoints, grid: FixedGrid, *, impl: Impl = "auto") -> FixedPillars:
    """Sort points by pillar in two launches, and clear the workspace of :func:`locate_points`.

    Args:
        located: from :func:`locate_points`; call :func:`fixed_encode` first, because this clears the sums.
        grid: rows of ``located.bits``; points of pillars beyond its capacity are dropped.
        impl: see :func:`locate_points`.

    Raises:
        ValueError: the grid does not match the workspace.
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
    """Run :func:`locate_points`, make the grid, and run :func:`sort_points`, without features.

    Args:
        points, lengths, config, workspace, impl: see :func:`locate_points`.
        capacity: capacity for pillars of the whole batch; the lowest cells are kept, and ``grid.active``
            counts all.
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
    """Compute the pillar features of :class:`~perception.model.encoder.PillarEncoder`, in two launches.

    Sums over points use whole numbers, so the order of points does not matter. Products and sums are float32,
    except in the pillars' layer: it multiplies in float16 for float16 features, and in TF32 for bfloat16.

    Args:
        located: from :func:`locate_points`, before :func:`sort_points`.
        grid: rows of ``located.bits``; points of pillars beyond its capacity are ignored.
        dtype: dtype of the features: float16, bfloat16 or float32.
        out: (capacity, C) output buffer of this dtype.
        impl: see :func:`locate_points`.

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


def _check_points(points: Tensor, lengths: Tensor, columns: int) -> None:
    if points.ndim != 3 or points.shape[2] != columns or len(points) == 0:
        raise ValueError(f"points must have shape (B, P, {columns}), B at least 1, got {tuple(points.shape)}")
    if lengths.shape != points.shape[:1]:
        raise ValueError(f"lengths must have shape ({len(points)},), got {tuple(lengths.shape)}")
    if points.dtype != torch.float32:
        raise TypeError(f"points must be float32, got {points.dtype}")
    if lengths.dtype != torch.int32:
        raise TypeError(f"lengths must be int32, got {lengths.dtype}")
    if not points.is_contiguous():
        raise ValueError("points must be contiguous")
    if lengths.device != points.device:
        raise ValueError(f"lengths must be on {points.device} like points, got {lengths.device}")
    if points.numel() >= 2**31:
        raise ValueError(
            f"points must hold fewer than 2^31 numbers, got {points.shape[0] * points.shape[1]} points"
        )


def _check_grid(located: LocatedPoints, grid: FixedGrid) -> None:
    workspace = located.workspace
    if (grid.spatial_shape, grid.batch_size) != (workspace.spatial_shape, workspace.batch_size):
        raise ValueError(
            f"grid has {grid.batch_size} frames of {grid.spatial_shape} cells,"
            f" but the points were located on {workspace.batch_size} of {workspace.spatial_shape}"
        )


def _check_workspace(workspace: PillarWorkspace, points: Tensor, config: PillarConfig) -> None:
    found = (workspace.spatial_shape, workspace.batch_size, workspace.counts.device)
    wanted = (config.grid_shape, len(points), points.device)
    if found != wanted:
        raise ValueError(f"workspace is for (grid, frames, device) {found}, but {wanted} is needed")
