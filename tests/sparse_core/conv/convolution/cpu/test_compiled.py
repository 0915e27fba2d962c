"""Compare plans made in C++ with those made by array operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from background_library import same, with_and_without
from drawn_cells import some_cells
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_core.conv.convolution.cpu import blocks as blocks_module
from sparse_core.conv.convolution.cpu import compiled
from sparse_core.conv.convolution.cpu.levels import DirectLevel, direct_level, strided_level
from sparse_core.conv.convolution.cpu.tiles import TILE_MARGINS, TILE_SHAPES, tile_plan
from sparse_core.kernels import native

pytestmark = pytest.mark.skipif(native.compiler() is None, reason="needs a C++ compiler")

SEARCHED = settings(max_examples=60)


def both(function: Callable[[], Any]) -> tuple[Any, Any]:
    return with_and_without(compiled.PLANNING, function)


def parts_of(level: DirectLevel) -> list[Any]:
    ordered = level.ordered
    return [level.cells, *ordered, level.gathered, level.rows]


SHAPES = st.one_of(
    st.tuples(st.integers(1, 30), st.integers(1, 30)),
    st.tuples(*[st.integers(1, 6)] * 3),
    st.tuples(st.integers(1, 20)),
)


@SEARCHED
@given(
    shape=SHAPES,
    frames=st.integers(1, 3),
    share=st.sampled_from([0.0, 0.02, 0.2, 0.7, 1.0]),
    kernel=st.tuples(*[st.integers(1, 3)] * 3),
    stride=st.tuples(*[st.integers(1, 3)] * 3),
    padding=st.tuples(*[st.integers(0, 2)] * 3),
    seed=st.integers(0, 999),
)
def test_levels(
    shape: tuple[int, ...],
    frames: int,
    share: float,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    seed: int,
) -> None:
    axes = len(shape)
    kernel, stride, padding = kernel[:axes], stride[:axes], padding[:axes]
    kernel = tuple(min(size, wide + 2 * pad) for size, wide, pad in zip(kernel, shape, padding, strict=True))
    cells = some_cells(shape, frames, share, seed)
    own = (3, 3) if axes == 2 else (3, 1, 3) if axes == 3 else (3,)

    def planned() -> list[Any]:
        level = direct_level(cells, shape, frames, own)
        if axes == 2:
            after, made = strided_level(level, kernel, stride, padding)
            blocks = [made.blocks(16), after.blocks(8), after.blocks(64)]
            return [*parts_of(level), *parts_of(after), made, *blocks]
        return [*parts_of(level), level.blocks(32)]

    quick, plain = both(planned)
    assert same(quick, plain)


@pytest.mark.parametrize("elements", [1, 1 << 12, 1 << 20])
@pytest.mark.parametrize("channels", [1, 4, 64, 512])
@pytest.mark.parametrize("kernel", [(3, 3), (3, 1), (5, 3)])
def test_blocks_of_any_size(
    elements: int, channels: int, kernel: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks_module, "BLOCK_ELEMENTS", elements)
    cells = some_cells((90, 110), 2, 0.3, channels)
    quick, plain = both(lambda: direct_level(cells, (90, 110), 2, kernel).blocks(channels))
    assert same(quick, plain)
    assert quick[-1].stop == len(cells)


@SEARCHED
@given(
    shape=st.tuples(st.integers(1, 70), st.integers(1, 60)),
    frames=st.integers(1, 3),
    share=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    channels=st.sampled_from([1, 64, 4096]),
    dtype=st.sampled_from(list(TILE_SHAPES)),
    seed=st.integers(0, 999),
)
def test_tiles(
    shape: tuple[int, int],
    frames: int,
    share: float,
    channels: int,
    dtype: torch.dtype,
    seed: int,
) -> None:
    cells = some_cells(shape, frames, share, seed)
    cells = cells[torch.randperm(len(cells), generator=torch.Generator().manual_seed(seed))]
    (above, below), (left, right) = TILE_MARGINS
    rows = torch.arange(frames * (shape[0] + above + below) * (shape[1] + left + right), dtype=torch.int32)
    line = shape[1] + left + right
    strides, origin = (line * (shape[0] + above + below), line, 1), above * line + left
    quick, plain = both(
        lambda: tile_plan(cells, shape, frames, TILE_SHAPES[dtype], rows, strides, origin, channels)[1:]
    )
    assert same(quick, plain)
