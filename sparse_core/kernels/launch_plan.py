"""Launch plans: a call that was made before makes its launches alone, from C.

The device takes 5 µs for a small product and Python 40: checks, the choice of an implementation, Triton's
binding of arguments. A :class:`LaunchPlan` skips all of that. It has three parts:

* **key**: shapes, strides, types and options, which decide the kernels and their grids. The owner of the
  plan (a sparse matrix, an attention pattern, a packed weight) finds it by the key.
* **guard**: conditions that every call checks. The plan's device is the current one, addresses are aligned,
  and no fixed tensor has moved. Neither autograd nor ``torch.func`` follows the call.
* **launches**: kernels, grids and arguments as the driver gets them, and where addresses go in the arguments.

A call whose guard fails takes the ordinary way, with the same kernels and the same bits. So does every call
if ``SPARSIGHT_LAUNCH_PLANS=0`` is in the environment, or if no C++ compiler is at hand
(:mod:`sparse_core.kernels.native`). ``docs/benchmarks/calls.md`` lists what a plan saves for each op.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from copy import copy
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sparse_core.errors import ImplementationError
from sparse_core.kernels import native, nvrtc, torch_internals
from sparse_core.kernels.torch_internals import perhaps_followed

SWITCH = "SPARSIGHT_LAUNCH_PLANS"
"""Environment variable; ``0`` keeps new plans from being made."""

ALIGNMENT = 16
"""Kernels are compiled, and libraries choose theirs, for addresses that this divides."""

_SOURCE = Path(__file__).with_name("launch_plan.cpp")

#: ``CUlaunchAttribute`` of programmatic dependent launch: begin while the launch before it ends.
PROGRAMMATIC = (6).to_bytes(8, "little") + (1).to_bytes(64, "little")

Launcher = Callable[..., None]
"""Enqueues on a stream (``CUstream`` as an integer) of the current device, with these addresses."""

Scratch = Callable[[int], tuple[Sequence[int], object]]
"""Addresses of scratch memory for a stream, and what keeps the memory alive."""


class KernelLaunch(NamedTuple):
    """A launch as the driver gets it.

    Attributes:
        function: ``CUfunction`` as an integer.
        grid, block: in x, y and z.
        shared_bytes: dynamic shared memory.
        attributes: ``CUlaunchAttribute`` structures, one after the other.
        arguments: bytes of each argument, in the order of the kernel.
    """

    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    attributes: bytes
    arguments: tuple[bytes, ...]


class Place(NamedTuple):
    """The place of an address in the arguments of a launch.

    Attributes:
        argument: which argument.
        offset: byte of the argument.
        address: number of the launcher's address.
        shift: bytes that are added to the address.
        in_map: True if the argument is a ``CUtensorMap``, whose address the driver replaces.
    """

    argument: int
    offset: int
    address: int
    shift: int
    in_map: bool = False


class KernelStep(NamedTuple):
    """A launch, and where addresses go in its arguments."""

    launch: KernelLaunch
    places: tuple[Place, ...]


class Bias(NamedTuple):
    """The bias of a :class:`MatmulStep`, which is an attribute of a descriptor that products share.

    Attributes:
        function: address of ``cusparseLtMatmulDescSetAttribute``.
        descriptor: address of the descriptor.
        attribute: number of the bias pointer among attributes.
        current: address of the word that holds the current bias of the descriptor.
        address: of the bias that the step needs.
    """

    function: int
    descriptor: int
    attribute: int
    current: int
    address: int


class MatmulStep(NamedTuple):
    """A call of ``cusparseLtMatmul``.

    Attributes:
        function: its address.
        pointers: the first nine arguments: handle, plan, alpha, weight, input, beta, C, result and workspace.
        places: number of a pointer, and number of the launcher's address that replaces it.
        bias: to be set before, if the product has one.
    """

    function: int
    pointers: tuple[int, ...]
    places: tuple[tuple[int, int], ...]
    bias: Bias | tuple[()] = ()


Step = KernelStep | MatmulStep


class LaunchPlan:
    """The launches of a call, for tensors of the same layout at other addresses.

    Args:
        launcher: takes the addresses of the operands, of the result and of scratch memory.
        result: of the call, for its layout, type and device.
        fixed: tensors that the launches read at the addresses of now.
        scratch: memory that the launches use between them, if any.
        kept: objects that must live as long as the plan.
    """

    __slots__ = (
        *("_launcher", "_scratch", "_kept", "_fixed"),
        *("_shape", "_strides", "_dtype", "_device", "_index"),
    )

    def __init__(
        self,
        launcher: Launcher,
        result: Tensor,
        fixed: Sequence[Tensor] = (),
        scratch: Scratch | None = None,
        kept: object = None,
    ) -> None:
        self._launcher, self._scratch, self._kept = launcher, scratch, kept
        self._shape, self._strides = result.shape, result.stride()
        self._dtype, self._device, self._index = result.dtype, result.device, result.get_device()
        self._fixed = tuple(tensor.data_ptr() for tensor in fixed)

    def with_shape(self, shape: tuple[int, ...]) -> LaunchPlan:
        """Return the same plan with a result of another shape, contiguous and as large."""
        other = copy(self)
        other._shape = torch.Size(shape)
        other._strides = torch.empty(shape, device="meta").stride()
        return other

    def __call__(self, operands: Sequence[Tensor], fixed: Sequence[Tensor] = ()) -> Tensor | None:
        """Launch for operands whose key is that of the plan.

        Args:
            operands: whose addresses the launcher takes.
            fixed: as when the plan was made.

        Returns:
            The result; None if the guard fails, so that the call has to take the ordinary way.
        """
        index, addresses = self._index, []
        # First, since tensors under transforms of torch.func have no address.
        if torch_internals.current_device() != index or perhaps_followed(*operands, *fixed):
            return None
        for operand in operands:
            address = operand.data_ptr()
            if address % ALIGNMENT or operand.get_device() != index:
                return None
            addresses.append(address)
        if fixed:
            # Python takes 0.3 us to check that both are as long, which the key decides.
            for tensor, address in zip(fixed, self._fixed):  # noqa: B905
                if tensor.data_ptr() != address:
                    return None
        result = torch.empty_strided(self._shape, self._strides, dtype=self._dtype, device=self._device)
        stream = torch_internals.raw_stream(index)
        if self._scratch is None:
            self._launcher(stream, *addresses, result.data_ptr())
        else:
            # Held until the launches are enqueued; what a stream does with the memory later comes after them.
            scratch, _held = self._scratch(stream)
            self._launcher(stream, *addresses, result.data_ptr(), *scratch)
        return result


def plans_enabled() -> bool:
    """True unless :data:`SWITCH` is ``0``; read whenever a plan could be made, never while one is used."""
    return os.environ.get(SWITCH, "1") != "0"


def make_launcher(steps: Sequence[Step], lock: Lock | None = None) -> Launcher | None:
    """Return a function of a stream and of the addresses that the steps name, which does them in order.

    Args:
        steps: of the plan.
        lock: guards state that the steps share with other code.

    Returns:
        None where plans are switched off, or no compiler for the C++ is at hand.

    Raises:
        ValueError: a place lies outside the arguments.
    """
    if not plans_enabled() or not available():
        return None
    moves_maps = any(place.in_map for step in steps if isinstance(step, KernelStep) for place in step.places)
    call = launcher_class()(
        nvrtc.entry("cuLaunchKernelEx"),
        nvrtc.entry("cuTensorMapReplaceAddress") if moves_maps else 0,
        described(steps),
    )

    def run(stream: int, *addresses: int) -> None:
        status = call(stream, *addresses)
        if status < 0:
            raise ImplementationError(f"cusparseLtMatmul failed with status {-status}")
        if status:
            nvrtc.settle(status, lambda: call(stream, *addresses), "a kernel launch")

    if lock is None:
        return run

    def run_alone(stream: int, *addresses: int) -> None:
        with lock:
            run(stream, *addresses)

    return run_alone


@cache
def available() -> bool:
    """True if the launcher in C++ can be compiled here, and the driver is NVIDIA's."""
    try:
        launcher_class()
    except ImplementationError:
        return False
    return torch.version.hip is None


def launcher_class() -> Any:
    """The class in C++; ``ImplementationError`` where it cannot be compiled."""
    return native.load_module(_SOURCE).Launcher


def described(steps: Sequence[Step]) -> tuple[tuple[object, ...], ...]:
    """Steps as the class in C++ takes them."""
    return tuple(
        (*step.launch, tuple(tuple(place) for place in step.places))
        if isinstance(step, KernelStep)
        else tuple(step)
        for step in steps
    )


def argument_sizes(function: int) -> list[int]:
    """Return the bytes of each argument of a ``CUfunction``; empty for old drivers."""
    read_size = getattr(nvrtc.driver(), "cuFuncGetParamInfo", None)
    sizes: list[int] = []
    while read_size is not None:
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        index = ctypes.c_size_t(len(sizes))
        if read_size(ctypes.c_void_p(function), index, ctypes.byref(offset), ctypes.byref(size)):
            break
        sizes.append(size.value)
    return sizes
