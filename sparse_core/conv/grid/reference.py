"""Grids of fixed capacity in plain torch: the oracle, and the implementation on a CPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sparse_core.conv.coordinates.common import linear_keys
from sparse_core.conv.geometry import own_cells, taps
from sparse_core.conv.grid.layout import (
    WORD,
    FixedGrid,
    FixedHash,
    Grid,
    GridLevel,
    cell_coordinates,
    linear_cells,
    word_count,
)


def grid_from_bits(bits: Tensor, spatial_shape: tuple[int, ...], batch_size: int, capacity: int) -> FixedGrid:
    """Give the ones of ``bits`` (words,) int32 their rows."""
    ones = _unpack(bits)
    per_word = ones.sum(1)
    before = per_word.cumsum(0) - per_word
    found = ones.flatten().nonzero()[:capacity, 0].to(torch.int32)
    cells = torch.full((capacity,), -1, dtype=torch.int32, device=bits.device)
    cells[: len(found)] = found
    active = per_word.sum().to(torch.int32)[None]
    words = torch.stack([bits, before.to(torch.int32)], dim=1)
    return FixedGrid(spatial_shape, batch_size, capacity, words, cells, active.clamp(max=capacity), active)


def bits_of_cells(cells: Tensor, words: int) -> Tensor:
    """Set the bits of ``cells`` (N,) int32 in (words,) int32; negative ones are ignored."""
    ones = torch.zeros(words * WORD, dtype=torch.bool, device=cells.device)
    ones[cells[cells >= 0].long()] = True
    return _pack(ones.view(words, WORD))


def next_level_bits(
    bits: Tensor,
    spatial_shape: tuple[int, ...],
    batch_size: int,
    level: GridLevel,
    out_shape: tuple[int, ...],
) -> Tensor:
    """Return the bits of a strided convolution's outputs from those of its inputs."""
    cells = _unpack(bits).flatten().nonzero()[:, 0]
    coordinates = cell_coordinates(cells, spatial_shape).long()
    if level.dilating:
        reached = [_outputs(coordinates, tap, *level[1:3], out_shape) for tap in taps(level.kernel_size)]
        coordinates = torch.cat([cells[inside] for cells, inside in reached])
    else:
        coordinates = own_cells(coordinates, level.stride, out_shape)
    return bits_of_cells(linear_cells(coordinates, out_shape), word_count(out_shape, batch_size))


def row_of(words: Tensor, cells: Tensor, inside: Tensor, capacity: int) -> Tensor:
    """Return the row of each cell, int32: -1 if not ``inside``, not active or beyond the capacity."""
    position = torch.where(inside, cells, 0).long()
    word = words[position // WORD].long()
    bits, before, place = word[..., 0] & 0xFFFFFFFF, word[..., 1], position % WORD
    below = bits & ((1 << place) - 1)
    rank = before + sum(((below >> bit) & 1) for bit in range(WORD))
    found = inside & (((bits >> place) & 1) > 0) & (rank < capacity)
    return torch.where(found, rank, -1).to(torch.int32)


def table(
    inputs: Grid,
    outputs: Grid,
    kernel_size: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    inverse: bool,
    device: torch.device,
) -> Tensor:
    """Return (taps, rows) int32: rows of ``inputs`` for those of ``outputs``, or reversed if ``inverse``."""
    read, written = (outputs, inputs) if inverse else (inputs, outputs)
    coordinates = _coordinates(written, device)
    lines = []
    for tap in taps(kernel_size):
        if inverse:
            found, inside = _outputs(coordinates, tap, stride, padding, read.spatial_shape)
        else:
            found, inside = _inputs(coordinates, tap, stride, padding, read.spatial_shape)
        lines.append(_lookup(read, found, inside & (coordinates[:, 0] >= 0)))
    return torch.stack(lines)


def hash_from_keys(keys: Tensor, spatial_shape: tuple[int, ...], batch_size: int, capacity: int) -> FixedHash:
    """Give the distinct ones of (N,) int64 keys their rows; negative ones are ignored. There are no slots."""
    distinct = torch.unique(keys[keys >= 0], sorted=True)
    padded_keys = torch.full((capacity,), -1, dtype=torch.int64, device=keys.device)
    padded_keys[: len(distinct)] = distinct[:capacity]
    active = torch.tensor([len(distinct)], dtype=torch.int32, device=keys.device)
    count = active.clamp(max=capacity)
    return FixedHash(spatial_shape, batch_size, capacity, padded_keys, None, None, count, active)


def strided_keys(inputs: FixedHash, level: GridLevel, out_shape: tuple[int, ...]) -> Tensor:
    """Return keys of the outputs that a strided convolution reaches, with repeats; -1 for none."""
    coordinates = _coordinates(inputs, inputs.keys.device)
    if not level.dilating:
        own = linear_keys(own_cells(coordinates, level.stride, out_shape), out_shape)
        return torch.where(inputs.keys < 0, -1, own)
    keys = []
    for tap in taps(level.kernel_size):
        cells, inside = _outputs(coordinates, tap, level.stride, level.padding, out_shape)
        keys.append(torch.where(inside & (inputs.keys >= 0), linear_keys(cells, out_shape), -1))
    return torch.cat(keys)


def _coordinates(grid: Grid, device: torch.device) -> Tensor:
    """Return coordinates (rows, 1 + D) int64 of a grid's rows, -1 beyond the last."""
    if isinstance(grid, FixedGrid | FixedHash):
        return grid.coordinates().long()
    axes = [torch.arange(size, device=device) for size in (grid.batch_size, *grid.spatial_shape)]
    return torch.cartesian_prod(*axes).view(-1, len(axes))


def _lookup(grid: Grid, coordinates: Tensor, inside: Tensor) -> Tensor:
    """Return rows of coordinates, int32, -1 if not ``inside`` or not active."""
    if isinstance(grid, FixedGrid):
        return row_of(grid.words, linear_cells(coordinates, grid.spatial_shape), inside, grid.capacity)
    if isinstance(grid, FixedHash):
        return grid.rows_of(torch.where(inside[:, None], coordinates, -1)).to(torch.int32)
    rows = coordinates[:, 0]
    for column, size in zip(coordinates.unbind(1)[1:], grid.spatial_shape, strict=True):
        rows = rows * size + column
    return torch.where(inside, rows, -1).to(torch.int32)


def _inputs(
    outputs: Tensor,
    tap: tuple[int, ...],
    stride: Sequence[int],
    padding: Sequence[int],
    in_shape: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Return the coordinates that one tap of each output reads, and True for those in the grid."""
    step, shift, limit = (
        torch.tensor(values, device=outputs.device)
        for values in ([1, *stride], [0, *(t - p for t, p in zip(tap, padding, strict=True))], in_shape)
    )
    found = outputs * step + shift
    return found, ((found[:, 1:] >= 0) & (found[:, 1:] < limit)).all(1)


def _outputs(
    inputs: Tensor,
    tap: tuple[int, ...],
    stride: Sequence[int],
    padding: Sequence[int],
    out_shape: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Return the coordinates of the outputs that read each input through one tap, and True for valid ones."""
    step, shift, limit = (
        torch.tensor(values, device=inputs.device)
        for values in ([1, *stride], [0, *(p - t for t, p in zip(tap, padding, strict=True))], out_shape)
    )
    reached = inputs + shift
    found = torch.div(reached, step, rounding_mode="floor")
    inside = (found * step == reached)[:, 1:] & (found[:, 1:] >= 0) & (found[:, 1:] < limit)
    return found, inside.all(1)


def _unpack(bits: Tensor) -> Tensor:
    """Unpack to (words, 32) bool."""
    return ((bits[:, None] >> torch.arange(WORD, device=bits.device, dtype=torch.int32)) & 1) > 0


def _pack(ones: Tensor) -> Tensor:
    """Pack (words, 32) bool to (words,) int32."""
    packed = (ones.long() << torch.arange(WORD, device=ones.device)).sum(1)
    return torch.where(packed >= 2**31, packed - 2**32, packed).to(torch.int32)
