"""What C++ plans is what arrays plan, number by number."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparse_core import native
from sparse_core.conv.convolution.cpu import blocks as blocks_module
from sparse_core.conv.convolution.cpu import compiled
from sparse_core.conv.convolution.cpu.levels import DirectLevel, direct_level, strided_level
from sparse_core.conv.convolution.cpu.tiles import TILE_MARGINS, TILE_SHAPES, tile_plan

pytestmark = pytest.mark.skipif(native.compiler() is None, reason="needs a C++ compiler")

SEARCHED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], tuple[Any, Any]]:
    """Something with C++ and with arrays; and with both, since C++ may be there from any call on."""

    def run(function: Callable[[], Any]) -> tuple[Any, Any]:
        assert compiled.PLANNING.ready()
        library = compiled.PLANNING.library()
        quick = function()
        with monkeypatch.context() as patched:
            patched.setattr(compiled.PLANNING, "library", lambda: None)
            plain = function()
            for turns in ([library, None], [None, library], [None, None, library]):
                taken = itertools.cycle(turns)
                patched.setattr(compiled.PLANNING, "library", lambda taken=taken: next(taken))
                assert same(function(), plain)
        return quick, plain

    return run


def some_cells(shape: tuple[int, ...], frames: int, share: float, seed: int) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return (torch.rand((frames, *shape), generator=random) < share).nonzero()


def parts_of(level: DirectLevel) -> list[Any]:
    ordered = level.ordered
    return [level.cells, ordered.order, ordered.sets.tolist(), ordered.taps, level.gathered, level.rows]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


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
    both: Any,
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
            after, blocks, computed = strided_level(level, kernel, stride, padding, 16)
            return [*parts_of(level), *parts_of(after), blocks, computed, after.blocks(8), after.blocks(64)]
        return [*parts_of(level), level.blocks(32)]

    quick, plain = both(planned)
    assert same(quick, plain)


@pytest.mark.parametrize("elements", [1, 1 << 12, 1 << 20])
@pytest.mark.parametrize("channels", [1, 4, 64, 512])
@pytest.mark.parametrize("kernel", [(3, 3), (3, 1), (5, 3)])
def test_blocks_of_any_size(
    both: Any, elements: int, channels: int, kernel: tuple[int, int], monkeypatch: pytest.MonkeyPatch
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
    both: Any,
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
