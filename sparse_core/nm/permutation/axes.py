"""Unification of tensor dimensions that must be permuted together."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import NamedTuple


class Segment(NamedTuple):
    """A run of an axis: the channels of one variable, each ``inner`` elements wide.

    Flattening (channels, height, width) gives a segment with ``inner`` = height * width.
    """

    variable: int
    inner: int


Axis = tuple[Segment, ...]


@dataclass(frozen=True)
class Value:
    """A tensor of the graph: its shape, and an axis per dimension."""

    shape: tuple[int, ...]
    axes: tuple[Axis, ...]

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)


@dataclass
class AxisSystem:
    """Variables for the order of channels, equal to or composed of each other, free or locked.

    Attributes:
        sizes: channels of each variable.
        bound: segments of which a variable consists.
        locks: reason why a variable's channels keep their order.
    """

    sizes: list[int] = field(default_factory=list)
    bound: dict[int, Axis] = field(default_factory=dict)
    locks: dict[int, str] = field(default_factory=dict)

    def fresh(self, size: int, lock: str | None = None) -> Axis:
        """Return a new axis of ``size`` elements, locked if a reason ``lock`` is given."""
        self.sizes.append(size)
        variable = len(self.sizes) - 1
        if lock is not None:
            self.locks[variable] = lock
        return (Segment(variable, 1),)

    def resolve(self, axis: Axis) -> Axis:
        """Return ``axis`` in variables that are not bound."""
        result: list[Segment] = []
        for segment in axis:
            if segment.variable not in self.bound:
                result.append(segment)
                continue
            parts = self.resolve(self.bound[segment.variable])
            self.bound[segment.variable] = parts
            result += [Segment(part.variable, part.inner * segment.inner) for part in parts]
        return tuple(result)

    def width(self, segment: Segment) -> int:
        """Return the number of elements of a segment."""
        return self.sizes[segment.variable] * segment.inner

    def lock(self, axis: Axis, reason: str) -> None:
        """Keep the order of an axis's channels; the first reason stays."""
        for segment in self.resolve(axis):
            self.locks.setdefault(segment.variable, reason)

    def lock_all(self, values: list[Value], reason: str) -> None:
        """Lock every axis of ``values``."""
        for value in values:
            for axis in value.axes:
                self.lock(axis, reason)

    def unify(self, first: Axis, second: Axis) -> None:
        """Give both axes the same order of channels from now on."""
        first, second = self.resolve(first), self.resolve(second)
        if first == second:
            return
        if sum(map(self.width, first)) == sum(map(self.width, second)):
            if self._bind(first, second) or self._bind(second, first):
                return
            if len(first) == len(second) and all(
                self.width(one) == self.width(other) for one, other in zip(first, second, strict=True)
            ):
                self._unify_segments(first, second)
                return
        reason = "channels meet in another arrangement"
        self.lock(first, reason)
        self.lock(second, reason)

    def scaled(self, axis: Axis, inner: int) -> Axis:
        """Return ``axis`` with each element repeated as a block of ``inner`` elements."""
        return tuple(Segment(part.variable, part.inner * inner) for part in self.resolve(axis))

    def split(self, axis: Axis, sizes: list[int]) -> list[Axis]:
        """Cut an axis into parts of the given sizes; a variable that is cut becomes several."""
        cuts = {sum(sizes[:end]) for end in range(len(sizes) + 1)}
        if not self._cut(axis, cuts):
            self.lock(axis, "channels are split within a block")
            return [self.fresh(size, "channels are split within a block") for size in sizes]
        parts: list[list[Segment]] = [[] for _ in sizes]
        position, part = 0, 0
        for segment in self.resolve(axis):
            while position >= sum(sizes[: part + 1]):
                part += 1
            parts[part].append(segment)
            position += self.width(segment)
        return [tuple(segments) for segments in parts]

    def _cut(self, axis: Axis, cuts: set[int]) -> bool:
        """Divide variables so that every position of ``cuts`` lies between segments."""
        position = 0
        for segment in self.resolve(axis):
            end = position + self.width(segment)
            inside = sorted(cut - position for cut in cuts if position < cut < end)
            position = end
            if not inside:
                continue
            repeated = sum(part.variable == segment.variable for part in self.resolve(axis)) > 1
            if repeated or any(cut % segment.inner for cut in inside):
                return False
            edges = [0, *(cut // segment.inner for cut in inside), self.sizes[segment.variable]]
            lock = self.locks.get(segment.variable)
            pieces = [self.fresh(high - low, lock)[0] for low, high in itertools.pairwise(edges)]
            self.bound[segment.variable] = tuple(pieces)
        return True

    def _bind(self, axis: Axis, target: Axis) -> bool:
        if len(axis) != 1 or axis[0].inner != 1:
            return False
        variable = axis[0].variable
        if any(segment.variable == variable for segment in target):
            return False
        if variable in self.locks:
            self.lock(target, self.locks[variable])
        self.bound[variable] = target
        return True

    def _unify_segments(self, first: Axis, second: Axis) -> None:
        for one, other in zip(first, second, strict=True):
            low, high = sorted((one, other), key=lambda segment: segment.inner)
            if high.inner % low.inner:
                self.lock((one, other), "channels meet in another arrangement")
            else:
                self.unify((Segment(low.variable, 1),), (Segment(high.variable, high.inner // low.inner),))
