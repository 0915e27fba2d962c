"""Lists of cells near active ones, and tables over them, for CUDA graphs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from perception.stages.neck import reference
from perception.stages.neck.empty import EmptyMaps, NearTables, WrittenMaps
from sparse_core.conv.grid.layout import FixedGrid
from sparse_core.op import Impl, Op, by_torch, by_triton

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
    """Cells within 1, 2, … cells of an active one, diagonals included: a grid for each capacity.

    Args:
        first: active cells of two-dimensional grids.
        capacities: rows there is room for in each list, 1 to 31 of them.
        written: maps whose listed cells get their values of an empty scene again, in the same launch.
        empty: geometry of the small map behind ``written``.
        impl: ``"reference"`` is plain torch; ``"triton"`` takes two launches and can be captured in a CUDA
            graph (CUDA, or Triton's interpreter); ``"auto"`` is Triton for CUDA tensors.

    Raises:
        ValueError: sizes that do not fit each other.
        ImplementationError: ``impl`` cannot run here.
    """
    if len(first.spatial_shape) != 2:
        raise ValueError(f"first must be of two dimensions, got {first.spatial_shape}")
    if not 1 <= len(capacities) <= _MOST_LISTS or min(capacities) < 1:
        raise ValueError(f"capacities must be 1 to {_MOST_LISTS} positive numbers, got {list(capacities)}")
    if (written is None) != (empty is None):
        raise ValueError("written and empty go together")
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
    """Tables of all layers over the lists, and the finer cells below the last.

    Args:
        lists: lists 0 to n of one map, n odd and at least 3; each holds the cells next to the one before.
        empty: geometry of the small map, of the lists' shape.
        fine_cells: (4 * capacity of the last list,) int32, overwritten: ``(frame * 2H + iy) * 2W + ix`` of
            the finer cells, -1 behind the last.
        impl: as for :func:`near_lists`; Triton takes one launch.

    Raises:
        ValueError: lists that do not fit each other, or ``fine_cells`` of another shape.
        ImplementationError: ``impl`` cannot run here.
    """
    if len(lists) < 4 or len(lists) % 2:
        raise ValueError(f"lists must be an even number, at least 4, got {len(lists)}")
    shapes = {(entry.spatial_shape, entry.batch_size) for entry in lists}
    if shapes != {(empty.shape, lists[0].batch_size)}:
        raise ValueError(f"lists must be of maps of {empty.shape}, got {sorted(shapes)}")
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
