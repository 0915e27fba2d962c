"""Rules of operations that move, merge, split, cut or select dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sparse_core.nm.permutation.axes import Axis, Segment, Value
from sparse_core.nm.permutation.rules import Call, barrier, tensors_in

# An axis that repeats more often than this within another one is locked.
_MOST_REPEATS = 64


def pooling(call: Call, *, spatial: int) -> Value:
    """Replace the last ``spatial`` dimensions, keep the others."""
    for axis in call.x.axes[-spatial:]:
        call.system.lock(axis, f"{call.name} works along this dimension")
    return Value(call.shape, (*call.x.axes[:-spatial], *map(call.fixed, call.shape[-spatial:])))


def resize(call: Call) -> Value:
    """Follow padding, interpolation and slicing: lock dimensions that change."""
    axes = []
    for axis, before, after in zip(call.x.axes, call.x.shape, call.shape, strict=True):
        if before != after:
            call.system.lock(axis, f"{call.name} cuts or extends this dimension")
        axes.append(axis if before == after else call.fixed(after))
    return Value(call.shape, tuple(axes))


def interpolate(call: Call) -> Value:
    """Follow interpolation and padding of every dimension except the first two."""
    return pooling(call, spatial=max(1, call.x.ndim - 2))


def permute(call: Call) -> Value:
    """Follow ``x.permute(dims)``."""
    return Value(call.shape, tuple(call.x.axes[dim] for dim in call.integers(1, "dims")))


def transpose(call: Call) -> Value:
    """Follow ``x.transpose(a, b)``, and ``x.T`` and ``x.mT`` without arguments."""
    axes = list(call.x.axes)
    first, second = call.argument(1, "dim0", -1), call.argument(2, "dim1", -2)
    if len(axes) > 1:
        axes[first], axes[second] = axes[second], axes[first]
    return Value(call.shape, tuple(axes))


def reshape(call: Call) -> Value:
    """Follow a change of shape; merged channels stay together as blocks, split ones are locked."""
    axes: list[Axis] = []
    for before, after in _blocks(call.x.shape, call.shape):
        sources = [call.x.axes[dim] for dim in before if call.x.shape[dim] != 1]
        wide = [dim for dim in after if call.shape[dim] != 1]
        if len(wide) == 1 and sources:
            target: Axis | None = _merged(call, [dim for dim in before if call.x.shape[dim] != 1])
        else:
            target = None
            for axis in sources if wide else ():
                call.system.lock(axis, f"{call.name} splits channels")
        axes += [target if target and dim in wide else call.fixed(call.shape[dim]) for dim in after]
    return Value(call.shape, tuple(axes))


def concatenate(call: Call) -> Value:
    """Follow ``cat(tensors, dim)``: segments side by side."""
    values: Sequence[Value] = tensors_in(call.argument(0, "tensors"))
    dim = call.argument(1, "dim", call.kwargs.get("axis", 0)) % len(call.shape)
    values = [value for value in values if value.ndim == len(call.shape)]
    axes = list(values[0].axes)
    for value in values[1:]:
        for other in range(len(axes)):
            if other != dim:
                call.system.unify(axes[other], value.axes[other])
    axes[dim] = tuple(part for value in values for part in call.system.resolve(value.axes[dim]))
    return Value(call.shape, tuple(axes))


def split(call: Call, shapes: list[tuple[int, ...]]) -> tuple[Value, ...]:
    """Follow ``split`` and ``chunk``, which divide the channels into runs."""
    dim = call.argument(2, "dim", 0) % call.x.ndim
    parts = call.system.split(call.x.axes[dim], [shape[dim] for shape in shapes])
    axes = call.x.axes
    return tuple(
        Value(shape, (*axes[:dim], part, *axes[dim + 1 :])) for shape, part in zip(shapes, parts, strict=True)
    )


def glu(call: Call) -> Value:
    """Follow a gated linear unit: unify both halves of the channels."""
    dim = call.argument(1, "dim", -1) % call.x.ndim
    half = call.x.shape[dim] // 2
    first, second = call.system.split(call.x.axes[dim], [half, half])
    call.system.unify(first, second)
    return Value(call.shape, (*call.x.axes[:dim], first, *call.x.axes[dim + 1 :]))


def get_item(call: Call) -> Value:
    """Follow ``x[index]`` with slices, integers, None and ellipses; lock for anything else."""
    index = call.argument(1, "index")
    index = index if isinstance(index, tuple) else (index,)
    if any(not (item is None or item is Ellipsis or isinstance(item, int | slice)) for item in index):
        barrier(call)
        return Value(call.shape, tuple(map(call.fixed, call.shape)))
    used = sum(item is not None and item is not Ellipsis for item in index)
    where = index.index(Ellipsis) if Ellipsis in index else len(index)
    filled = (*index[:where], *[slice(None)] * (call.x.ndim - used), *index[where + 1 :])
    axes: list[Axis] = []
    dim = 0
    for item in filled:
        if item is None:
            axes.append(call.fixed(1))
            continue
        axis, size = call.x.axes[dim], call.x.shape[dim]
        whole = isinstance(item, slice) and item in (slice(None), slice(0, None), slice(None, None, 1))
        if not whole:
            call.system.lock(axis, f"{call.name} picks channels by number")
        if isinstance(item, slice):
            axes.append(axis if whole else call.fixed(len(range(*item.indices(size)))))
        dim += 1
    return Value(call.shape, tuple(axes))


def select(call: Call) -> Value:
    """Follow ``x.select(dim, number)``."""
    dim = call.argument(1, "dim") % call.x.ndim
    call.system.lock(call.x.axes[dim], f"{call.name} picks channels by number")
    return Value(call.shape, (*call.x.axes[:dim], *call.x.axes[dim + 1 :]))


def slice_along(call: Call) -> Value:
    """Follow ``x.narrow`` and the slices of exported graphs."""
    if call.shape == call.x.shape and call.kwargs.get("step", 1) == 1 and len(call.args) < 5:
        return Value(call.shape, call.x.axes)
    return resize(call)


def _merged(call: Call, dims: list[int]) -> Axis:
    """Return the axis of several merged dimensions: (A, B, C) runs through C first."""
    axis: Axis = ()
    for position, dim in enumerate(dims):
        inner = math.prod(call.x.shape[other] for other in dims[position + 1 :])
        outer = math.prod(call.x.shape[other] for other in dims[:position])
        locked = all(part.variable in call.system.locks for part in call.system.resolve(call.x.axes[dim]))
        if locked and len(dims) > 1:
            continue
        others_free = bool(axis)
        if others_free or outer > _MOST_REPEATS:
            call.system.lock(axis, f"{call.name} mixes dimensions")
            call.system.lock(call.x.axes[dim], f"{call.name} mixes dimensions")
            continue
        axis = tuple(
            Segment(part.variable, part.inner)
            for _ in range(outer)
            for part in call.system.scaled(call.x.axes[dim], inner)
        )
    if not axis:
        return call.fixed(math.prod(call.x.shape[dim] for dim in dims))
    return axis


def _blocks(before: tuple[int, ...], after: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Return the smallest runs of dimensions of equal size on both sides of a reshape."""
    if 0 in before:
        return [(list(range(len(before))), list(range(len(after))))]
    blocks = []
    i = j = 0
    while i < len(before) or j < len(after):
        left, right = [i] if i < len(before) else [], [j] if j < len(after) else []
        i, j = i + len(left), j + len(right)
        size_left = math.prod(before[dim] for dim in left)
        size_right = math.prod(after[dim] for dim in right)
        while size_left != size_right:
            if size_left < size_right:
                left.append(i)
                size_left *= before[i]
                i += 1
            else:
                right.append(j)
                size_right *= after[j]
                j += 1
        blocks.append((left, right))
    return blocks
