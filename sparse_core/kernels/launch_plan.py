"""Launch plans: repeat the kernel launches of an earlier call from C, without the Python in between.

The device needs 5 µs for a small product and Python 40: checks, the choice of an implementation, Triton's
binding of arguments. A :class:`LaunchPlan` skips all of that. It has three parts:

* **key**: shapes, strides, types and options, which determine the kernels and their grids. The owner of the
  plan (a sparse matrix, an attention pattern, a packed weight) looks it up by the key.
* **guard**: conditions that every call checks. The plan's device is the current one, addresses are aligned,
  and no fixed tensor has moved. Neither autograd nor ``torch.func`` follows the call.
* **launches**: kernels, grids and arguments as the driver takes them, and where addresses go in the
  arguments.

If the guard fails, the call runs as usual, with the same kernels and the same bits. So does every call if
``SPARSIGHT_LAUNCH_PLANS=0`` is in the environment, or if the C++ part is neither in the wheel nor can be
compiled (:mod:`sparse_core.kernels.native`). ``docs/benchmarks/calls.md`` lists what a plan saves per op.
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
from sparse_core.kernels.torch_internals import may_need_autograd

SWITCH = "SPARSIGHT_LAUNCH_PLANS"
"""Environment variable; ``0`` disables new plans."""

ALIGNMENT = 16
"""Kernels assume that this divides the addresses of their tensors."""

_SOURCE = Path(__file__).with_name("launch_plan.cpp")

#: ``CUlaunchAttribute`` of programmatic dependent launch: start before the previous launch ends.
PROGRAMMATIC = (6).to_bytes(8, "little") + (1).to_bytes(64, "little")

Launcher = Callable[..., None]
"""Launches on a stream (``CUstream`` as an integer) of the current device, with the given addresses."""

Scratch = Callable[[int], tuple[Sequence[int], object]]
"""Returns addresses of scratch memory for a stream, and an object that keeps it alive."""


class KernelLaunch(NamedTuple):
    """A kernel launch as the driver takes it; ``function`` is a ``CUfunction`` as an integer."""

    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    attributes: bytes
    arguments: tuple[bytes, ...]


class Place(NamedTuple):
    """Position of an address in the arguments of a launch.

    Attributes:
        argument: number of the argument.
        offset: byte within the argument.
        address: number of the launcher's address.
        shift: bytes added to the address.
        in_map: True if the argument is a ``CUtensorMap``, whose address the driver replaces.
    """

    argument: int
    offset: int
    address: int
    shift: int
    in_map: bool = False


class KernelStep(NamedTuple):
    """A launch and the places of addresses in its arguments."""

    launch: KernelLaunch
    places: tuple[Place, ...]


class Bias(NamedTuple):
    """The bias of a :class:`MatmulStep`, an attribute of a descriptor that products share.

    Attributes:
        function: address of ``cusparseLtMatmulDescSetAttribute``.
        descriptor: address of the descriptor.
        attribute: number of the bias pointer among the attributes.
        current: address of the word that holds the descriptor's current bias.
        address: address of the bias that the step needs.
    """

    function: int
    descriptor: int
    attribute: int
    current: int
    address: int


class MatmulStep(NamedTuple):
    """A call of ``cusparseLtMatmul``.

    Attributes:
        function: address of the function.
        pointers: the first nine arguments: handle, plan, alpha, weight, input, beta, C, result and workspace.
        places: pairs of a pointer's number and the number of the launcher's address that replaces it.
        bias: bias to set before, if the product has one.
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
        result: result of the call; its layout, type and device are reused.
        fixed: tensors that the launches read at their present addresses.
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
        """Return the plan with a contiguous result of another shape and the same size."""
        other = copy(self)
        other._shape = torch.Size(shape)
        other._strides = torch.empty(shape, device="meta").stride()
        return other

    def __call__(self, operands: Sequence[Tensor], fixed: Sequence[Tensor] = ()) -> Tensor | None:
        """Launch for operands whose key is that of the plan.

        Returns:
            The result; None if the guard fails and the call must run as usual.
        """
        index, addresses = self._index, []
        # Checked first, because tensors under transforms of torch.func have no address.
        if torch_internals.current_device() != index or may_need_autograd(*operands, *fixed):
            return None
        for operand in operands:
            address = operand.data_ptr()
            if address % ALIGNMENT or operand.get_device() != index:
                return None
            addresses.append(address)
        if fixed:
            # strict=True would take 0.3 us, and the key already fixes both lengths.
            for tensor, address in zip(fixed, self._fixed):  # noqa: B905
                if tensor.data_ptr() != address:
                    return None
        result = torch.empty_strided(self._shape, self._strides, dtype=self._dtype, device=self._device)
        stream = torch_internals.raw_stream(index)
        if self._scratch is None:
            self._launcher(stream, *addresses, result.data_ptr())
        else:
            # Held until the launches are enqueued; later uses of the memory follow on the stream.
            scratch, _held = self._scratch(stream)
            self._launcher(stream, *addresses, result.data_ptr(), *scratch)
        return result


def plans_enabled() -> bool:
    """Return True unless :data:`SWITCH` is ``0``; read when a plan could be made, not when one is used."""
    return os.environ.get(SWITCH, "1") != "0"


def make_launcher(steps: Sequence[Step], lock: Lock | None = None) -> Launcher | None:
    """Return a function of a stream and addresses that runs the steps in order.

    Args:
        steps: steps of the plan.
        lock: guards state that the steps share with other code.

    Returns:
        None if plans are disabled, or the C++ part is neither in the wheel nor can be compiled.

    Raises:
        ValueError: a place lies outside the arguments.
    """
    if not plans_enabled() or not available():
        return None
    moves_maps = any(place.in_map for step in steps if isinstance(step, KernelStep) for place in step.places)
    call = native_maker()(
        nvrtc.driver_address("cuLaunchKernelEx"),
        nvrtc.driver_address("cuTensorMapReplaceAddress") if moves_maps else 0,
        step_tuples(steps),
    )

    def run(stream: int, *addresses: int) -> None:
        status = call(stream, *addresses)
        if status < 0:
            raise ImplementationError(f"cusparseLtMatmul failed with status {-status}")
        if status:
            nvrtc.check_with_retry(status, lambda: call(stream, *addresses), "a kernel launch")

    if lock is None:
        return run

    def run_alone(stream: int, *addresses: int) -> None:
        with lock:
            run(stream, *addresses)

    return run_alone


@cache
def available() -> bool:
    """Return True if the C++ launcher is built or can be compiled here, and the driver is NVIDIA's."""
    try:
        native_maker()
    except ImplementationError:
        return False
    return torch.version.hip is None


def native_maker() -> Any:
    """Return the C++ function that makes launchers; raises ``ImplementationError`` without its library."""
    return native.load_module(_SOURCE).make_launcher


def step_tuples(steps: Sequence[Step]) -> tuple[tuple[object, ...], ...]:
    """Return steps as the C++ function takes them."""
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
