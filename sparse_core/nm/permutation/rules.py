"""Rules: how operations pass on, tie or lock the axes of their tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sparse_core.nm.permutation.axes import Axis, AxisSystem, Value


@dataclass(frozen=True)
class Call:
    """One operation of the graph, with :class:`Value` in place of tensors.

    ``shape`` is that of the result; of the first tensor if there are several.
    """

    system: AxisSystem
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shape: tuple[int, ...]

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """Return an argument by position or name."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)

    @property
    def tensors(self) -> list[Value]:
        """Return all tensor arguments, also those in lists."""
        return tensors_in((self.args, self.kwargs))

    @property
    def x(self) -> Value:
        """First tensor argument."""
        return self.tensors[0]

    def fixed(self, size: int) -> Axis:
        """Return a new locked axis."""
        return self.system.fresh(size, f"{self.name} fixes the order")

    def integers(self, position: int, name: str) -> list[int]:
        """Return a list of integers, which may also be separate arguments."""
        found = self.argument(position, name)
        if isinstance(found, int):
            rest = [number for number in self.args[position:] if isinstance(number, int)]
            return rest or [found]
        return [int(number) for number in found]


def tensors_in(tree: Any) -> list[Value]:
    """Return every :class:`Value` in nested lists, tuples and dicts, in order."""
    if isinstance(tree, Value):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        return [value for item in tree for value in tensors_in(item)]
    return []


def barrier(call: Call, reason: str | None = None) -> None:
    """Lock every axis that goes into a call."""
    call.system.lock_all(call.tensors, reason or f"{call.name} may mix channels")


def elementwise(call: Call) -> Value:
    """Unify axes that meet by broadcasting."""
    axes = []
    for dim, size in enumerate(call.shape):
        met = []
        for value in call.tensors:
            own = dim - len(call.shape) + value.ndim
            if own >= 0 and value.shape[own] == size:
                met.append(value.axes[own])
        for axis in met[1:]:
            call.system.unify(met[0], axis)
        axes.append(met[0] if met else call.fixed(size))
    return Value(call.shape, tuple(axes))


def linear(call: Call) -> Value:
    """Follow ``x @ weight.T + bias``."""
    x, weight, bias = call.x, call.argument(1, "weight"), call.argument(2, "bias")
    call.system.unify(x.axes[-1], weight.axes[1])
    if bias is not None:
        call.system.unify(weight.axes[0], bias.axes[0])
    return Value(call.shape, (*x.axes[:-1], weight.axes[0]))


def convolution(call: Call, *, spatial: int, transposed: bool = False) -> Value:
    """Follow a convolution over the last ``spatial`` dimensions; grouped ones lock unless depthwise."""
    x, weight, bias = call.x, call.argument(1, "weight"), call.argument(2, "bias")
    groups = call.argument(6, "groups", 1)
    inner, outer = (0, 1) if transposed else (1, 0)
    incoming, out = x.axes[-spatial - 1], weight.axes[outer]
    channels = x.shape[-spatial - 1]
    if groups == 1:
        call.system.unify(incoming, weight.axes[inner])
    elif groups == channels and not transposed:
        call.system.lock(weight.axes[1], "a depthwise convolution has no input dimension to order")
        call.system.unify(out, call.system.scaled(incoming, weight.shape[0] // groups))
    else:
        barrier(call, f"{call.name} is a grouped convolution")
        out = call.fixed(call.shape[-spatial - 1])
    if bias is not None:
        call.system.unify(out, bias.axes[0])
    lead = x.axes[: -spatial - 1]
    return Value(call.shape, (*lead, out, *map(call.fixed, call.shape[-spatial:])))


def channel_norm(call: Call) -> Value:
    """Follow batch and instance normalisation: a statistic and a factor per channel."""
    for vector in call.tensors[1:]:
        call.system.unify(call.x.axes[1], vector.axes[0])
    return Value(call.shape, call.x.axes)


def layer_norm(call: Call) -> Value:
    """Follow layer or RMS normalisation; over one dimension the order does not matter."""
    if len(call.integers(1, "normalized_shape")) != 1:
        barrier(call, f"{call.name} normalises several dimensions together")
        return Value(call.shape, call.x.axes)
    for vector in call.tensors[1:]:
        call.system.unify(call.x.axes[-1], vector.axes[0])
    return Value(call.shape, call.x.axes)


def group_norm(call: Call) -> Value:
    """Follow group normalisation: locks channels unless there is one group, or one per channel."""
    if call.argument(1, "num_groups") not in (1, call.x.shape[1]):
        barrier(call, f"{call.name} normalises groups of channels")
    return channel_norm(call)


def embedding(call: Call, *, indices: int) -> Value:
    """Follow a table lookup; ``indices`` is the position of the row numbers among the first two arguments."""
    numbers = call.argument(indices, "input")
    table = call.argument(1 - indices, "weight")
    call.system.lock(table.axes[0], "rows of an embedding table are looked up by number")
    return Value(call.shape, (*numbers.axes, table.axes[1]))


def reduction(call: Call) -> Value:
    """Follow sums, means and extremes, which do not depend on the order of reduced dimensions."""
    given = call.argument(1, "dim")
    dims = range(call.x.ndim) if given is None else [given] if isinstance(given, int) else given
    gone = {dim % call.x.ndim for dim in dims}
    if len(call.shape) == call.x.ndim:
        axes = [call.fixed(1) if dim in gone else axis for dim, axis in enumerate(call.x.axes)]
    else:
        axes = [axis for dim, axis in enumerate(call.x.axes) if dim not in gone]
    return Value(call.shape, tuple(axes))


def matmul(call: Call) -> Value:
    """Follow products of matrices or vectors, which sum over the inner dimension."""
    first, second = call.tensors[:2]
    call.system.unify(first.axes[-1], second.axes[-2 if second.ndim > 1 else 0])
    rows = first.axes[-2:-1]
    columns = second.axes[-1:] if second.ndim > 1 else ()
    batch = len(call.shape) - len(rows) - len(columns)
    lead = [Value(value.shape[:-2], value.axes[:-2]) for value in (first, second)]
    outer = elementwise(Call(call.system, call.name, tuple(lead), {}, call.shape[:batch]))
    return Value(call.shape, (*outer.axes, *rows, *columns))


def addmm(call: Call) -> Value:
    """Follow ``bias + first @ second``."""
    bias, first, second = call.tensors
    product = matmul(Call(call.system, call.name, (first, second), {}, call.shape))
    return elementwise(Call(call.system, call.name, (product, bias), {}, call.shape))


def attention(call: Call) -> Value:
    """Follow scaled dot-product attention of (..., tokens, channels)."""
    query, key, value = call.tensors[:3]
    call.system.unify(query.axes[-1], key.axes[-1])
    call.system.unify(key.axes[-2], value.axes[-2])
    call.system.lock_all(
        [Value(one.shape[:-1], one.axes[:-1]) for one in call.tensors], f"{call.name} fixes the order"
    )
    return Value(call.shape, (*query.axes[:-1], value.axes[-1]))


Rule = Callable[[Call], Value]
