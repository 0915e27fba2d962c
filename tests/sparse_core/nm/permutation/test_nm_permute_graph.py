"""Axes are unified, split and locked as the operations of a graph demand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sparse_core.nm.permutation.axes import AxisSystem, Segment, Value
from sparse_core.nm.permutation.graph import ChannelGraph
from sparse_core.nm.permutation.rules import Call
from sparse_core.nm.permutation.shapes import get_item, reshape


def call(system: AxisSystem, value: Value, shape: tuple[int, ...], *args: object) -> Call:
    """A call on one tensor."""
    return Call(system, "operation", (value, *args), {}, shape)


def is_locked(system: AxisSystem, axis: tuple[Segment, ...]) -> bool:
    """Whether any channel of the axis must stay."""
    return any(segment.variable in system.locks for segment in system.resolve(axis))


def test_unified_axes_are_one_and_share_locks() -> None:
    system = AxisSystem()
    first, second, third = (system.fresh(8) for _ in range(3))
    system.unify(first, second)
    system.unify(third, second)
    assert system.resolve(first) == system.resolve(second) == system.resolve(third)
    system.lock(third, "because")
    assert [system.locks[segment.variable] for segment in system.resolve(first)] == ["because"]


def test_a_lock_survives_being_bound_to_several_segments() -> None:
    system = AxisSystem()
    left, right, whole = system.fresh(8), system.fresh(4), system.fresh(12, "because")
    system.unify(whole, left + right)
    assert is_locked(system, left)
    assert is_locked(system, right)


def test_concatenations_match_segment_by_segment_or_are_locked() -> None:
    system = AxisSystem()
    a, b, c, d, e, f = (system.fresh(size) for size in (8, 4, 8, 4, 4, 8))
    system.unify(a + b, c + d)
    assert system.resolve(a) == system.resolve(c)
    assert system.resolve(b) == system.resolve(d)
    assert not is_locked(system, a + b)
    system.unify(a + b, e + f)
    assert all(is_locked(system, axis) for axis in (a, b, e, f))


def test_an_axis_cannot_consist_of_itself() -> None:
    system = AxisSystem()
    x = system.fresh(4)
    twice = system.fresh(8)
    system.unify(twice, x + x)
    assert len(system.resolve(twice)) == 2
    system.unify(x, tuple(Segment(segment.variable, 1) for segment in x))
    assert not is_locked(system, x)


def test_blocks_of_different_width_are_refined() -> None:
    system = AxisSystem()
    coarse, fine = system.fresh(4), system.fresh(8)
    system.unify(system.scaled(coarse, 6), system.scaled(fine, 3))
    assert system.resolve(fine) == (Segment(coarse[0].variable, 2),)
    odd = system.fresh(3)
    system.unify(system.scaled(odd, 8), system.scaled(coarse, 6))
    assert is_locked(system, odd)
    assert is_locked(system, fine)


def test_splitting_cuts_variables_or_locks_within_blocks() -> None:
    system = AxisSystem()
    x = system.fresh(12)
    left, right = system.split(x, [4, 8])
    assert system.resolve(x) == system.resolve(left) + system.resolve(right)
    assert not is_locked(system, x)
    blocks = system.scaled(system.fresh(3), 4)
    parts = system.split(blocks, [6, 6])
    assert is_locked(system, blocks)
    assert all(is_locked(system, part) for part in parts)


def test_reshape_keeps_merges_and_locks() -> None:
    system = AxisSystem()
    batch, channels, space = system.fresh(2, "input"), system.fresh(8), system.fresh(9, "space")
    x = Value((2, 8, 9), (batch, channels, space))
    merged = reshape(call(system, x, (2, 72)))
    assert system.resolve(merged.axes[1]) == (Segment(channels[0].variable, 9),)
    kept = reshape(call(system, x, (2, 1, 8, 3, 3)))
    assert kept.axes[2] == channels
    assert not is_locked(system, channels)
    repeated = reshape(call(system, x, (16, 9)))
    assert len(system.resolve(repeated.axes[0])) == 2
    reshape(call(system, x, (2, 4, 2, 9)))
    assert is_locked(system, channels)


def test_two_free_dimensions_do_not_merge() -> None:
    system = AxisSystem()
    first, second = system.fresh(3), system.fresh(4)
    reshape(call(system, Value((3, 4), (first, second)), (12,)))
    assert is_locked(system, first)
    assert is_locked(system, second)


@pytest.mark.parametrize(
    ("index", "shape", "locked"),
    [
        ((slice(None), 0), (2, 8), False),
        ((Ellipsis, None), (2, 5, 8, 1), False),
        ((0,), (5, 8), False),
        ((Ellipsis, 3), (2, 5), True),
        ((Ellipsis, slice(1, None)), (2, 5, 7), True),
        (([0, 1],), (2, 5, 8), True),
    ],
)
def test_indexing_locks_only_what_it_picks_from(index: object, shape: tuple[int, ...], locked: bool) -> None:
    system = AxisSystem()
    x = Value((2, 5, 8), (system.fresh(2, "batch"), system.fresh(5, "token"), system.fresh(8)))
    result = get_item(call(system, x, shape, index))
    assert tuple(sum(map(system.width, axis)) for axis in result.axes) == shape
    assert is_locked(system, x.axes[2]) == locked


def test_parameters_that_the_forward_pass_skips_are_locked() -> None:
    class Partial(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(4, 8), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    graph = ChannelGraph(Partial(), torch.rand(2, 4))
    reasons = {
        name: [graph.system.locks[s.variable] for axis in value.axes for s in graph.system.resolve(axis)]
        for name, value in graph.values.items()
    }
    assert reasons["unused.weight"] == ["the forward pass does not use it"] * 2
    assert reasons["used.weight"] == ["the model's output", "the model's input"]


def test_tensors_that_share_memory_are_locked() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    model[2].weight = nn.Parameter(model[0].weight.detach().T)
    graph = ChannelGraph(model, torch.rand(2, 4))
    assert any("share memory" in reason for reason in graph.system.locks.values())
