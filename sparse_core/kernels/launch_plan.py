"""Kernel launches described to the driver once, and made again from C with other addresses.

A launch that goes through a library (choosing an algorithm, checking descriptors) or through ctypes takes
longer on the host than a small kernel runs. A :class:`Launch` holds what the driver needs: the function,
its grid and the bytes of its arguments. From what the same call enqueues for two sets of tensors, launches
and memory set to zero between them, :func:`repeated` learns where the addresses of the tensors are, and
makes a function of a stream and addresses of it. What it cannot explain that way it leaves alone, and so it
does without a C++ compiler (:mod:`sparse_core.kernels.native`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from sparse_core.errors import ImplementationError
from sparse_core.kernels import native, nvrtc

_SOURCE = Path(__file__).with_name("relaunch.cpp")
_WORD = 8

#: The launch may begin while the one before it on the stream ends.
PROGRAMMATIC = (6).to_bytes(8, "little") + (1).to_bytes(64, "little")

Relaunch = Callable[..., None]
"""Enqueues on a stream (``CUstream`` as an integer) of the current device, with these addresses."""


class Launch(NamedTuple):
    """A launch as the driver gets it.

    Attributes:
        function: ``CUfunction`` or ``CUkernel`` as an integer.
        grid, block: in x, y and z.
        shared_bytes: of dynamic shared memory.
        attributes: ``CUlaunchAttribute`` structures, one behind the other.
        arguments: the bytes of each, in the order of the kernel.
        packed: there is one entry, of all arguments as they lie in memory.
    """

    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    attributes: bytes
    arguments: tuple[bytes, ...]
    packed: bool = False


class Span(NamedTuple):
    """Memory of a tensor: where it begins, and how many bytes of it there are."""

    address: int
    size: int

    @classmethod
    def of(cls, tensor: Tensor) -> Span:
        """That of a contiguous tensor."""
        return cls(tensor.data_ptr(), tensor.numel() * tensor.element_size())

    def holds(self, word: int) -> bool:
        """Whether an address lies within."""
        return self.address <= word < self.address + self.size


class Clearing(NamedTuple):
    """Memory that is set to zero between launches: where it begins, and how many bytes."""

    address: int
    size: int


class Place(NamedTuple):
    """Where an address goes: which argument, at which byte, which tensor's, and how far behind its begin."""

    argument: int
    offset: int
    tensor: int
    more: int


class Placed(NamedTuple):
    """A launch, and where addresses go in its arguments."""

    launch: Launch
    places: tuple[Place, ...]


class Cleared(NamedTuple):
    """Memory that is set to zero: of which tensor, how far behind its begin, and how many bytes."""

    tensor: int
    more: int
    size: int


Step = Placed | Cleared


@cache
def _launcher() -> Any | None:
    """The class in C++; None where it cannot be compiled."""
    try:
        return native.load_module(_SOURCE).Launcher
    except ImplementationError:
        return None


def argument_sizes(function: int, *, is_kernel: bool = False) -> list[int]:
    """Bytes of each argument of a ``CUfunction`` or ``CUkernel``; none where the driver does not tell."""
    driver = nvrtc.driver()
    ask = getattr(driver, "cuKernelGetParamInfo" if is_kernel else "cuFuncGetParamInfo", None)
    sizes: list[int] = []
    while ask is not None:
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        index = ctypes.c_size_t(len(sizes))
        if ask(ctypes.c_void_p(function), index, ctypes.byref(offset), ctypes.byref(size)):
            break
        sizes.append(size.value)
    return sizes


def available() -> bool:
    """Whether launches can be repeated here."""
    return _launcher() is not None


def launcher(steps: Sequence[Step]) -> Relaunch | None:
    """A function of a stream and of the addresses that the steps name, which does them in their order.

    Returns:
        None where there is no compiler.

    Raises:
        ValueError: a place lies outside the arguments.
    """
    made = _launcher()
    if made is None:
        return None
    call = made(nvrtc.entry("cuLaunchKernelEx"), nvrtc.entry("cuMemsetD8Async"), described(steps))

    def run(stream: int, *addresses: int) -> None:
        status = call(stream, *addresses)
        if status:
            nvrtc.settle(status, lambda: call(stream, *addresses), "a kernel launch")

    return run


def described(steps: Sequence[Step]) -> tuple[tuple[object, ...], ...]:
    """Steps as the class in C++ takes them."""
    return tuple(
        (*step.launch, tuple(tuple(place) for place in step.places))
        if isinstance(step, Placed)
        else tuple(step)
        for step in steps
    )


def repeated(
    one: Sequence[Launch | Clearing],
    other: Sequence[Launch | Clearing],
    tensors: Sequence[Span],
    others: Sequence[Span],
    fixed: Sequence[Span] | None = None,
) -> Relaunch | None:
    """Launches, again and again, with other tensors.

    Args:
        one, other: what the same call enqueues for two sets of tensors.
        tensors, others: these, in the same order.
        fixed: all else that the arguments may point to, because it stays where it is; None: whatever they
            point to does.

    Returns:
        A function of a stream and the addresses of tensors; None where the two calls differ by more than
        those addresses, or point to what is not known.
    """
    steps = find_steps(one, other, tensors, others)
    if steps is None or (fixed is not None and _strange(steps, fixed)):
        return None
    return launcher(steps)


def find_steps(
    one: Sequence[Launch | Clearing],
    other: Sequence[Launch | Clearing],
    tensors: Sequence[Span],
    others: Sequence[Span],
) -> list[Step] | None:
    """Where the addresses of tensors are in what two calls enqueue; None where they do not tell."""
    if len(one) != len(other):
        return None
    steps: list[Step] = []
    used: set[int] = set()
    for first, second in zip(one, other, strict=True):
        if isinstance(first, Launch) and isinstance(second, Launch):
            places = _find_places(first, second, tensors, others)
            if places is None:
                return None
            steps.append(Placed(first, tuple(places)))
            used.update(place.tensor for place in places)
        elif isinstance(first, Clearing) and isinstance(second, Clearing) and first.size == second.size:
            place = _place(first.address, second.address, tensors, others)
            if place is None:
                return None
            steps.append(Cleared(*place, first.size))
            used.add(place[0])
        else:
            return None
    return steps if used == set(range(len(tensors))) else None


def _find_places(
    one: Launch, other: Launch, tensors: Sequence[Span], others: Sequence[Span]
) -> list[Place] | None:
    if one._replace(arguments=()) != other._replace(arguments=()):
        return None
    if [len(first) for first in one.arguments] != [len(second) for second in other.arguments]:
        return None
    places = []
    for argument, (first, second) in enumerate(zip(one.arguments, other.arguments, strict=True)):
        for offset in range(0, len(first), _WORD):
            word, changed = first[offset : offset + _WORD], second[offset : offset + _WORD]
            if word == changed:
                continue
            place = None
            if len(word) == _WORD:
                place = _place(_number(word), _number(changed), tensors, others)
            if place is None:
                return None
            places.append(Place(argument, offset, *place))
    return places


def _place(
    word: int, changed: int, tensors: Sequence[Span], others: Sequence[Span]
) -> tuple[int, int] | None:
    for index, (tensor, other) in enumerate(zip(tensors, others, strict=True)):
        more = word - tensor.address
        if tensor.holds(word) and changed - other.address == more:
            return index, more
    return None


def _strange(steps: Sequence[Step], fixed: Sequence[Span]) -> bool:
    """Whether an argument points to memory of a GPU that is neither in a place nor fixed."""
    return any(_points_elsewhere(step, fixed) for step in steps if isinstance(step, Placed))


def _points_elsewhere(step: Placed, fixed: Sequence[Span]) -> bool:
    known = {(place.argument, place.offset) for place in step.places}
    for argument, data in enumerate(step.launch.arguments):
        for offset in range(0, len(data) - _WORD + 1, _WORD):
            word = _number(data[offset : offset + _WORD])
            if (argument, offset) in known or any(span.holds(word) for span in fixed):
                continue
            if points_to_memory(word):
                return True
    return False


def points_to_memory(word: int) -> bool:
    """Whether a number is an address of memory that the driver knows."""
    kind = ctypes.c_uint()
    memory_type = 2  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    status = nvrtc.driver().cuPointerGetAttribute(ctypes.byref(kind), memory_type, ctypes.c_uint64(word))
    return bool(status == 0)


def _number(word: bytes) -> int:
    return int.from_bytes(word, "little")
