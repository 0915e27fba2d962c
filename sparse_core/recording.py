"""The kernel that a library's call launches, recorded so that it can be launched without the library.

A product by cuBLAS or cuSPARSELt is often one kernel, and its launch a small part of what the call takes on
the host. The call is recorded into a CUDA graph that is never run, twice, on tensors of no use; from the
graph's only node comes what the driver was given (:mod:`sparse_core.relaunch`). A call of several kernels,
one with memory of the library's own among its arguments, or one that cannot be recorded is left alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from sparse_core import nvrtc, relaunch
from sparse_core.errors import ImplementationError
from sparse_core.relaunch import Launch, Relaunch, Span

_KERNEL = 0  # CU_GRAPH_NODE_TYPE_KERNEL
_COOPERATIVE, _CLUSTER, _CLUSTER_ORDER, _CARVEOUT = 2, 4, 5, 14
_LAUNCHED_ATTRIBUTES = (_CLUSTER, _CLUSTER_ORDER, _CARVEOUT)
_VALUE_BYTES = 64

_recording = Lock()
#: The last graph on each device: it keeps the memory in which results of recorded calls lie for the next one.
_kept: dict[torch.device, torch.cuda.CUDAGraph] = {}


class _Node(ctypes.Structure):
    """``CUDA_KERNEL_NODE_PARAMS_v2``."""

    _fields_ = [
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("extra", ctypes.POINTER(ctypes.c_void_p)),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    ]


def record(
    call: Callable[[Tensor], Tensor], given: Tensor, fixed: Sequence[Tensor | None]
) -> Relaunch | None:
    """A function of a stream, the address of an input and that of a result, which does what ``call`` does.

    Args:
        call: gives its result for an input; enqueues on the current stream, and reads nothing on the host.
        given: an input; of the same shape and type are all others, and as much aligned. It is not read.
        fixed: other tensors that the call reads, which must stay where they are.

    Returns:
        None where the call is more than one kernel, or its arguments are not understood.
    """
    device = given.device
    if torch.cuda.is_current_stream_capturing() or not relaunch.available():
        return None
    try:
        with _recording, torch.cuda.device(device), torch.no_grad():
            return _record(call, given, [Span.of(one) for one in fixed if one is not None])
    except (ImplementationError, RuntimeError, AttributeError):
        # No memory for two more inputs and results, an operation that cannot be recorded, an old driver.
        return None


def _record(call: Callable[[Tensor], Tensor], given: Tensor, fixed: Sequence[Span]) -> Relaunch | None:
    inputs = [torch.empty_like(given) for _ in range(2)]
    for one in inputs:
        one.zero_()
    stream = _side_stream(given.device)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call(inputs[0])  # What is allocated at a first call on a stream must not be of the graph.
        recorded = [_captured(call, one) for one in inputs]
    torch.cuda.current_stream().wait_stream(stream)
    (first, made), (second, other) = recorded
    if first is None or second is None:
        return None
    tensors, others = (Span.of(inputs[0]), Span.of(made)), (Span.of(inputs[1]), Span.of(other))
    return relaunch.repeated(first, second, tensors, others, fixed)


def _captured(call: Callable[[Tensor], Tensor], given: Tensor) -> tuple[Launch | None, Tensor]:
    """The launch of a call, and its result, which is never computed."""
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    graph.capture_begin(pool=_pool(given.device), capture_error_mode="thread_local")
    try:
        made = call(given)
    finally:
        graph.capture_end()
    _kept[given.device] = graph
    return only_launch(graph.raw_cuda_graph()), made


def only_launch(graph: int) -> Launch | None:
    """The launch of a graph (``CUgraph`` as an integer) of one kernel; None for any other."""
    driver, handle = nvrtc.driver(), ctypes.c_void_p(graph)
    count = ctypes.c_size_t()
    _check(driver.cuGraphGetNodes(handle, None, ctypes.byref(count)))
    if count.value != 1:
        return None
    node = ctypes.c_void_p()
    _check(driver.cuGraphGetNodes(handle, ctypes.byref(node), ctypes.byref(count)))
    kind = ctypes.c_int()
    _check(driver.cuGraphNodeGetType(node, ctypes.byref(kind)))
    if kind.value != _KERNEL:
        return None
    found = _Node()
    _check(driver.cuGraphKernelNodeGetParams_v2(node, ctypes.byref(found)))
    attributes = _attributes(node)
    if attributes is None or not found.arguments:
        return None
    function = found.kernel or found.function
    if function is None:
        return None
    arguments = []
    for index, size in enumerate(relaunch.argument_sizes(function, is_kernel=bool(found.kernel))):
        address = found.arguments[index]
        if address is None:
            return None
        arguments.append(ctypes.string_at(address, size))
    grid, block = (
        (found.grid[0], found.grid[1], found.grid[2]),
        (found.block[0], found.block[1], found.block[2]),
    )
    return Launch(function, grid, block, found.shared_bytes, attributes, tuple(arguments))


def _attributes(node: ctypes.c_void_p) -> bytes | None:
    """Those of a kernel's node that its launch needs; None where programs wait for all others."""
    driver, found = nvrtc.driver(), b""
    value = (ctypes.c_char * _VALUE_BYTES)()
    for number in (_COOPERATIVE, *_LAUNCHED_ATTRIBUTES):
        ctypes.memset(value, 0, _VALUE_BYTES)
        status = driver.cuGraphKernelNodeGetAttribute(node, ctypes.c_int(number), ctypes.byref(value))
        if status or not any(value.raw):
            continue
        if number == _COOPERATIVE:
            return None
        found += number.to_bytes(8, "little") + value.raw
    return found


def _check(status: int) -> None:
    if status:
        raise ImplementationError(f"a recorded launch cannot be read: CUDA driver error {status}")


@cache
def _pool(device: torch.device) -> Any:
    return torch.cuda.graph_pool_handle()


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
