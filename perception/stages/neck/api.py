"""Lists of cells near active ones, and their neighbour tables, for CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from perception.stages.neck import reference
from perception.stages.neck.empty import EmptyMaps, NearTables, WrittenMaps
from sparse_core.conv.grid.layout import FixedGrid
from sparse_core.kernels.op import Impl, Op, by_torch, by_triton

_MOST_LISTS = 31
NECK: Op[()] = Op("neck", __package__, by_triton(), by_torch(), gradient=False)


def near_lists(
    first: FixedGrid,
    capacities: Sequence[int],
    *,
    written: WrittenMaps | None = None,
    empty: EmptyMaps | None = None,
    impl: Impl = "auto",
) -> list[FixedGrid]:
    """List the cells within 1, 2, … cells of an active one, diagonals included: one grid per capacity.

    Args:
        first: active cells of two-dimensional grids.
        capacities: capacity of each list, 1 to 31 of them.
        written: maps whose listed cells are reset to an empty scene in the same launch.
        empty: geometry of the small map for ``written``.
        impl: ``"reference"`` is plain torch; ``"triton"`` takes two launches and can be captured in a CUDA
            graph (CUDA, or Triton's interpreter); ``"auto"`` is Triton for CUDA tensors.

    Raises:
        ValueError: inconsistent sizes.
        ImplementationError: ``impl`` cannot run here.
    """
    if len(first.spatial_shape) != 2:
        raise ValueError(f"first must have two dimensions, got {first.spatial_shape}")
    if not 1 <= len(capacities) <= _MOST_LISTS or min(capacities) < 1:
        raise ValueError(f"capacities must be 1 to {_MOST_LISTS} positive numbers, got {list(capacities)}")
    if (written is None) != (empty is None):
        raise ValueError("pass written and empty together")
    if written is not None and empty is not None:
        _check_written(written, empty)
    if NECK.choose(impl, first.cells.device) == "reference":
        if written is not None and empty is not None:
            reference.restore_empty(written, empty)
        return reference.near_lists(first, capacities)
    from perception.stages.neck import triton

    return triton.near_lists(first, capacities, written, empty)


def near_tables(
    lists: Sequence[FixedGrid], empty: EmptyMaps, fine_cells: Tensor, *, impl: Impl = "auto"
) -> NearTables:
    """Make the tables of all layers over the lists, and list the finer cells of the last list.

    Args:
        lists: lists 0 to n of one map, n odd and at least 3; each contains the neighbours of the previous
            one.
        empty: geometry of the small map, with the lists' shape.
        fine_cells: (4 * capacity of the last list,) int32 output: ``(frame * 2H + iy) * 2W + ix`` of the
            finer cells; -1 after the last.
        impl: see :func:`near_lists`; Triton takes one launch.

    Raises:
        ValueError: inconsistent lists, or a wrong shape of ``fine_cells``.
        ImplementationError: ``impl`` cannot run here.
    """
    if len(lists) < 4 or len(lists) % 2:
        raise ValueError(f"the number of lists must be even and at least 4, got {len(lists)}")
    shapes = {(entry.spatial_shape, entry.batch_size) for entry in lists}
    if shapes != {(empty.shape, lists[0].batch_size)}:
        raise ValueError(f"lists must have maps of shape {empty.shape}, got {sorted(shapes)}")
    if tuple(fine_cells.shape) != (4 * lists[-1].capacity,) or fine_cells.dtype != torch.int32:
        raise ValueError(
            f"fine_cells must be ({4 * lists[-1].capacity},) int32, got {tuple(fine_cells.shape)}"
            f" {fine_cells.dtype}"
        )
    tables: NearTables = NECK.pick(impl, fine_cells.device).near_tables(lists, empty, fine_cells)
    return tables


def _check_written(written: WrittenMaps, empty: EmptyMaps) -> None:
    rows, columns = (2 * size for size in empty.shape)
    frames, classes = written.heat.shape[:2]
    channels = written.features.shape[1]
    expected = {
        "heat": (frames, classes, rows, columns),
        "features": (frames * rows * columns, channels),
        "empty_features": (4 * empty.cells, channels),
        "empty_heat": (4 * empty.cells, classes),
    }
    for name, shape in expected.items():
        tensor = getattr(written, name)
        if tuple(tensor.shape) != shape or not tensor.is_contiguous():
            raise ValueError(f"{name} must be {shape} and contiguous, got {tuple(tensor.shape)}")
    if written.cells.ndim != 1 or written.cells.dtype != torch.int32:
        raise ValueError(f"cells must be (N,) int32, got {tuple(written.cells.shape)} {written.cells.dtype}")
