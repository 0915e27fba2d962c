"""Last map, heat map, peaks and boxes with fixed shapes and without read-backs, for CUDA graphs.

Maps are (B * H * W, C) in row-major order. Features and weights have one dtype (float16, bfloat16 or
float32); sums are float32. Results are deterministic, and there are no gradients.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from perception.stages.head import reference
from perception.stages.head.types import FEATURE_DTYPES, BoxWeights, HeatWeights, Peaks, UpWeights
from sparse_core.conv.grid.layout import FixedGrid
from sparse_core.kernels.op import Impl, Op, by_torch, by_triton

HEAD: Op[()] = Op("head", __package__, by_triton(), by_torch(), gradient=False)


def fixed_up(
    coarse: Tensor,
    fine: Tensor,
    grid: FixedGrid,
    weights: UpWeights,
    *,
    at: FixedGrid | None = None,
    out: Tensor | None = None,
    impl: Impl = "auto",
) -> Tensor:
    """Upsample by a transposed 2x2 convolution, add the 1x1 convolution of the sparse level, apply ReLU.

    Args:
        coarse: (B * H * W, C_in) dense map, or (capacity, C_in) rows of ``at``.
        fine: (capacity, C_fine) rows of ``grid``; unused rows may hold anything.
        grid: active cells of B grids of 2H x 2W; inactive cells get no lateral part.
        weights: from :func:`pack_up`.
        at: cells of B grids of H x W for the rows of ``coarse``; None: all cells.
        out: contiguous output; with ``at``, unused rows stay unchanged.
        impl: ``"reference"``, ``"triton"`` (one launch) or ``"auto"``: Triton on CUDA if installed.

    Returns:
        (B * 2H * 2W, C_out) in the features' dtype. With ``at``: (4 * capacity, C_out), row
        ``4r + 2 (y % 2) + x % 2`` for the finer cell (y, x) of row r.

    Raises:
        ValueError: inconsistent shapes.
        TypeError: different dtypes.
        ImplementationError: ``impl`` cannot run here.
    """
    _check_features("coarse", coarse, weights.in_channels, weights.up.dtype)
    _check_features("fine", fine, weights.fine_channels, weights.up.dtype)
    shape = grid.spatial_shape
    if len(shape) != 2 or shape[0] % 2 or shape[1] % 2:
        raise ValueError(f"the finer grid must have an even number of rows and columns, got {shape}")
    cells = grid.batch_size * math.prod(shape)
    if at is not None:
        halved = (shape[0] // 2, shape[1] // 2)
        if (at.spatial_shape, at.batch_size, at.capacity) != (halved, grid.batch_size, len(coarse)):
            raise ValueError(
                f"at must be {grid.batch_size} grids of {halved} with coarse's {len(coarse)} rows, got"
                f" {at.batch_size} of {at.spatial_shape} with {at.capacity}"
            )
    elif 4 * len(coarse) != cells:
        raise ValueError(
            f"coarse must have {cells // 4} rows for {grid.batch_size} grids of {shape}, got {len(coarse)}"
        )
    if len(fine) != grid.capacity:
        raise ValueError(f"fine must have the grid's {grid.capacity} rows, got {len(fine)}")
    if out is not None:
        _check_out(out, (4 * len(coarse), weights.out_channels), coarse.dtype)
    up: Tensor = HEAD.pick(impl, coarse.device).up(coarse, fine, grid, weights, at, out)
    return up


def fixed_heat(
    features: Tensor,
    weights: HeatWeights,
    *,
    spatial_shape: tuple[int, int],
    cells: Tensor | None = None,
    out: Tensor | None = None,
    impl: Impl = "auto",
) -> Tensor:
    """Compute the heat map: 1x1 layer, ReLU, 1x1 layer, sigmoid.

    Args:
        features: (B * H * W, C).
        weights: from :func:`pack_heat`.
        spatial_shape: H and W.
        cells: (N,) int32 distinct rows to compute, negative for none; None: all. Other cells of ``out`` stay
            unchanged.
        out: (B, classes, H, W) float32 contiguous output; required with ``cells``.
        impl: see :func:`fixed_up`; Triton takes one launch.

    Returns:
        (B, classes, H, W) float32 scores in [0, 1].

    Raises:
        See :func:`fixed_up`.
    """
    _check_features("features", features, weights.in_channels, weights.hidden.dtype)
    frames = _frames(features, spatial_shape)
    if cells is not None and out is None:
        raise ValueError("cells needs out, which keeps the scores of the other cells")
    _check_cells(cells)
    if out is not None:
        _check_out(out, (frames, weights.classes, *spatial_shape), torch.float32)
    heat: Tensor = HEAD.pick(impl, features.device).heat(features, weights, spatial_shape, cells, out)
    return heat


def fixed_peaks(
    heat: Tensor,
    top_k: int,
    *,
    minimum: Tensor | None = None,
    counters: Tensor | None = None,
    impl: Impl = "auto",
) -> Peaks:
    """Find the ``top_k`` highest local maxima of a heat map over all classes, exactly.

    A cell is a peak if its score is positive and no neighbour among 8 has a higher score of the same class.
    Ties rank by ``(class * H + iy) * W + ix``.

    Args:
        heat: (B, classes, H, W) float32.
        top_k: peaks per frame, at least 1.
        minimum: (classes,) float32 lowest scores of peaks; None: 0. Every cell of a flat map is a peak, so
            a minimum saves time.
        counters: (B, 2) int32 zeros, reset after use; None: allocate them, with one more launch.
        impl: see :func:`fixed_up`; Triton takes two launches for any map.

    Raises:
        ValueError: wrong shape, ``top_k`` below 1, or 2^31 scores or more in a frame.
        TypeError: scores that are not float32.
        ImplementationError: ``impl`` cannot run here.
    """
    if heat.ndim != 4 or 0 in heat.shape:
        raise ValueError(f"heat must be (B, classes, H, W) and not empty, got {tuple(heat.shape)}")
    if heat.dtype != torch.float32:
        raise TypeError(f"heat must be float32, got {heat.dtype}")
    if top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}")
    # Offsets are 32-bit, and the last block of a frame may reach beyond its end.
    if heat[0].numel() > 2**31 - 2**16:
        raise ValueError(f"a frame may have at most 2^31 - 2^16 scores, got {heat[0].numel()}")
    if counters is not None and (counters.shape != (len(heat), 2) or counters.dtype != torch.int32):
        raise ValueError(
            f"counters must be ({len(heat)}, 2) int32, got {counters.dtype} {tuple(counters.shape)}"
        )
    if minimum is None:
        minimum = heat.new_zeros(heat.shape[1])
    if minimum.shape != heat.shape[1:2] or minimum.dtype != torch.float32:
        raise ValueError(
            f"minimum must be ({heat.shape[1]},) float32, got {minimum.dtype} {tuple(minimum.shape)}"
        )
    if HEAD.choose(impl, heat.device) == "reference":
        return reference.peaks(heat, top_k, minimum)
    from perception.stages.head import peaks_triton

    return peaks_triton.peaks(heat, top_k, minimum, counters)


def fixed_boxes(
    features: Tensor,
    cells: Tensor,
    labels: Tensor,
    weights: BoxWeights,
    *,
    spatial_shape: tuple[int, int],
    impl: Impl = "auto",
) -> Tensor:
    """Compute boxes at chosen cells: three layers on 3x3 cells, decoded for the class.

    Args:
        features: (B * H * W, C).
        cells: (B, K) int32 ``iy * W + ix`` in the frame.
        labels: (B, K) int32 classes, -1 for no box.
        weights: from :func:`pack_boxes`.
        spatial_shape: H and W.
        impl: see :func:`fixed_up`; Triton takes one launch.

    Returns:
        (B, K, 7) float32 boxes in the LiDAR frame; zeros for label -1.

    Raises:
        See :func:`fixed_up`.
    """
    _check_features("features", features, weights.in_channels, weights.hidden.dtype)
    frames = _frames(features, spatial_shape)
    for name, values in (("cells", cells), ("labels", labels)):
        if values.dtype != torch.int32:
            raise TypeError(f"{name} must be int32, got {values.dtype}")
        if values.ndim != 2 or len(values) != frames or values.shape != cells.shape:
            raise ValueError(f"{name} must be ({frames}, K), got {tuple(values.shape)}")
    if HEAD.choose(impl, features.device) == "reference":
        return reference.boxes(features, cells, labels, weights, spatial_shape)
    from perception.stages.head import boxes_triton

    return boxes_triton.boxes(features, cells, labels, weights, spatial_shape)


def _check_features(name: str, features: Tensor, channels: int, dtype: torch.dtype) -> None:
    if features.ndim != 2 or features.shape[1] != channels:
        raise ValueError(f"{name} must be (rows, {channels}), got {tuple(features.shape)}")
    if features.dtype != dtype or dtype not in FEATURE_DTYPES:
        raise TypeError(f"{name} must have the weights' type {dtype}, got {features.dtype}")


def _check_cells(cells: Tensor | None) -> None:
    if cells is not None and (cells.ndim != 1 or cells.dtype != torch.int32):
        raise TypeError(f"cells must be (N,) int32, got {tuple(cells.shape)} {cells.dtype}")


def _check_out(out: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if tuple(out.shape) != shape or out.dtype != dtype or not out.is_contiguous():
        raise ValueError(
            f"out must be {shape} {dtype} and contiguous, got {tuple(out.shape)} {out.dtype} with strides"
            f" {out.stride()}"
        )


def _frames(features: Tensor, spatial_shape: tuple[int, int]) -> int:
    """Return the number of frames of a map; raise unless it is a whole number of at least 1."""
    rows, columns = spatial_shape
    if len(features) == 0 or len(features) % (rows * columns):
        raise ValueError(f"features must have a multiple of {rows} * {columns} rows, got {len(features)}")
    return len(features) // (rows * columns)
