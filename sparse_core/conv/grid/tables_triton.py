"""Tables of neighbours in Triton: several of them in one launch.

A thread takes a row, computes its cell once, and looks up the cell under each tap. Geometry is constant, as
in :mod:`sparse_core.conv.grid.levels_triton`; pointers and capacities are not.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.conv.grid.hash_triton import key_of, place_of, row_of_hash
from sparse_core.conv.grid.layout import DenseGrid, FixedGrid, FixedHash, Grid
from sparse_core.conv.grid.triton import row_of
from sparse_core.kernels.launches import dependent, wait_for_launch
from sparse_core.kernels.launches import launch as _launch

#: Rows per program, one thread each.
_BLOCK = 64
#: Most tables per launch.
_MOST = 8
#: Kinds of a grid.
_BITMAP, _DENSE, _HASH = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
#: Entries per table in the tuple of constants.
_FIELDS = tl.constexpr(18)

Request = tuple[Grid, Grid, tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]


@triton.jit
def _places(rows, index, capacity, GEOMETRY: tl.constexpr, AT: tl.constexpr):
    """Coordinates of rows, and which rows have any; the fields at ``AT`` are the kind, sizes and line."""
    KIND: tl.constexpr = GEOMETRY[AT]
    DEPTH: tl.constexpr = GEOMETRY[AT + 1]
    HEIGHT: tl.constexpr = GEOMETRY[AT + 2]
    WIDTH: tl.constexpr = GEOMETRY[AT + 3]
    if KIND == _HASH:
        key = tl.load(rows + index, mask=index < capacity, other=-1)
        inside = key >= 0
        batch, z, y, x = place_of(key, DEPTH, HEIGHT, WIDTH)
    else:
        LINE: tl.constexpr = (WIDTH + 31) // 32 * 32 if KIND == _BITMAP else WIDTH
        LINES: tl.constexpr = HEIGHT if HEIGHT > 0 else 1
        PLANES: tl.constexpr = DEPTH if DEPTH > 0 else 1
        inside = index < capacity
        cell = index
        if KIND == _BITMAP:
            cell = tl.load(rows + index, mask=inside, other=-1)
            inside = cell >= 0
        x = cell % LINE
        rest = cell // LINE
        y = rest % LINES
        rest = rest // LINES
        z = rest % PLANES
        batch = rest // PLANES
    return inside, batch, z, y, x


@triton.jit
def _rows(read, values, batch, z, y, x, inside, limit, GEOMETRY: tl.constexpr, AT: tl.constexpr):
    """Rows of coordinates inside a grid; ``limit`` is the mask of a hash, or the capacity."""
    KIND: tl.constexpr = GEOMETRY[AT]
    DEPTH: tl.constexpr = GEOMETRY[AT + 1]
    HEIGHT: tl.constexpr = GEOMETRY[AT + 2]
    WIDTH: tl.constexpr = GEOMETRY[AT + 3]
    if KIND == _HASH:
        row = row_of_hash(read, values, key_of(batch, z, y, x, DEPTH, HEIGHT, WIDTH), inside, limit)
    else:
        LINE: tl.constexpr = (WIDTH + 31) // 32 * 32 if KIND == _BITMAP else WIDTH
        LINES: tl.constexpr = HEIGHT if HEIGHT > 0 else 1
        PLANES: tl.constexpr = DEPTH if DEPTH > 0 else 1
        cell = ((batch * PLANES + z) * LINES + y) * LINE + x
        row = row_of(read, cell, inside, limit) if KIND == _BITMAP else tl.where(inside, cell, -1)
    return row


@triton.jit
def _step(place, tap, STEP: tl.constexpr, PAD: tl.constexpr, SIZE: tl.constexpr, INVERSE: tl.constexpr):
    """Where a tap leads along one axis, and whether that lies in the grid."""
    LIMIT: tl.constexpr = SIZE if SIZE > 0 else 1
    if INVERSE:
        reached = place + PAD - tap
        found = reached // STEP
        inside = (reached >= 0) & (reached % STEP == 0) & (found < LIMIT)
    else:
        found = place * STEP + (tap - PAD)
        inside = (found >= 0) & (found < LIMIT)
    return found, inside


@triton.jit
def _table(
    rows, read, values, table, capacity, limit, block,
    GEOMETRY: tl.constexpr, AT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of rows of one table; its fields begin at ``AT``."""
    DEPTH: tl.constexpr = GEOMETRY[AT + 5]
    HEIGHT: tl.constexpr = GEOMETRY[AT + 6]
    WIDTH: tl.constexpr = GEOMETRY[AT + 7]
    KERNEL_Z: tl.constexpr = GEOMETRY[AT + 8]
    KERNEL_Y: tl.constexpr = GEOMETRY[AT + 9]
    KERNEL_X: tl.constexpr = GEOMETRY[AT + 10]
    INVERSE: tl.constexpr = GEOMETRY[AT + 17]
    index = block * BLOCK + tl.arange(0, BLOCK)
    inside, batch, z, y, x = _places(rows, index, capacity, GEOMETRY, AT)
    target = table + index
    for tap_z in range(KERNEL_Z):
        to_z, open_z = _step(z, tap_z, GEOMETRY[AT + 11], GEOMETRY[AT + 14], DEPTH, INVERSE)
        for tap_y in tl.static_range(KERNEL_Y):
            to_y, open_y = _step(y, tap_y, GEOMETRY[AT + 12], GEOMETRY[AT + 15], HEIGHT, INVERSE)
            for tap_x in tl.static_range(KERNEL_X):
                to_x, open_x = _step(x, tap_x, GEOMETRY[AT + 13], GEOMETRY[AT + 16], WIDTH, INVERSE)
                reached = inside & open_z & open_y & open_x
                row = _rows(read, values, batch, to_z, to_y, to_x, reached, limit, GEOMETRY, AT + 4)
                tl.store(target, row, mask=index < capacity)
                target += capacity


@triton.jit
def _tables_kernel(
    rows, reads, values, targets, capacities, limits, firsts,
    GEOMETRY: tl.constexpr, TABLES: tl.constexpr, BLOCK: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Each program finds its table by the first program of each, and makes a block of its rows."""
    wait_for_launch(DEPENDENT)
    program = tl.program_id(0)
    for number in tl.static_range(TABLES):
        block = program - firsts[number]
        if (block >= 0) & (program < firsts[number + 1]):
            _table(
                rows[number], reads[number], values[number], targets[number],
                capacities[number], limits[number], block, GEOMETRY, number * _FIELDS, BLOCK,
            )  # fmt: skip


def tables(requests: Sequence[Request], device: torch.device) -> list[Tensor]:
    """Make the table of each request, see :func:`sparse_core.conv.grid.neighbour_tables`."""
    made: list[Tensor] = []
    for first in range(0, len(requests), _MOST):
        made += _launch_tables(requests[first : first + _MOST], device)
    return made


def _launch_tables(requests: Sequence[Request], device: torch.device) -> list[Tensor]:
    """Make the tables of one launch."""
    pairs = [(outputs, inputs) if inverse else (inputs, outputs) for inputs, outputs, *_, inverse in requests]
    targets = [
        torch.empty(math.prod(request[2]), written.capacity, dtype=torch.int32, device=device)
        for request, (_, written) in zip(requests, pairs, strict=True)
    ]
    firsts, geometry = [0], []
    for request, (read, written) in zip(requests, pairs, strict=True):
        _, _, kernel_size, stride, padding, inverse = request
        firsts.append(firsts[-1] + triton.cdiv(written.capacity, _BLOCK))
        geometry += [
            *_grid_fields(written), *_grid_fields(read), *(1, 1, *kernel_size)[-3:],
            *(1, 1, *stride)[-3:], *(0, 0, *padding)[-3:], int(inverse),
        ]  # fmt: skip
    # A dense grid reads nothing, so any pointer will do.
    rows = [_rows_of(written, target) for (_, written), target in zip(pairs, targets, strict=True)]
    reads = [_read_of(read, target) for (read, _), target in zip(pairs, targets, strict=True)]
    _launch(
        _tables_kernel, firsts[-1], tuple(rows), tuple(part[0] for part in reads),
        tuple(part[1] for part in reads), tuple(targets),
        tuple(written.capacity for _, written in pairs), tuple(part[2] for part in reads), tuple(firsts),
        tuple(geometry), len(requests), BLOCK=_BLOCK, num_warps=_BLOCK // 32, **dependent(targets[0]),
    )  # fmt: skip
    return targets


def _grid_fields(grid: Grid) -> list[int]:
    """Return kind and sizes; 0 for an axis that the grid lacks."""
    kind = _DENSE if isinstance(grid, DenseGrid) else _HASH if isinstance(grid, FixedHash) else _BITMAP
    return [int(kind.value), *(0, 0, *grid.spatial_shape)[-3:]]


def _rows_of(grid: Grid, dummy: Tensor) -> Tensor:
    """Return the tensor with the coordinates of the rows."""
    if isinstance(grid, DenseGrid):
        return dummy
    return grid.cells if isinstance(grid, FixedGrid) else grid.keys


def _read_of(grid: Grid, dummy: Tensor) -> tuple[Tensor, Tensor, int]:
    """Return the tensors of a look-up (words, or slots and values), and the capacity or mask."""
    if isinstance(grid, FixedGrid):
        return grid.words, dummy, grid.capacity
    if isinstance(grid, FixedHash):
        if grid.slots is None or grid.values is None:
            raise ValueError("a FixedHash from the reference has no slots: make it with impl='triton'")
        return grid.slots, grid.values, len(grid.slots) - 1
    return dummy, dummy, grid.capacity
