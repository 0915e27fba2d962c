"""The kernels that a library's call launches, recorded so that they can be launched without the library.

A product by cuBLAS or cuSPARSELt is often one kernel, and its launch a small part of what the call takes on
the host. The call is recorded into a CUDA graph that is never run, twice, on tensors of no use; from the
graph's nodes comes what the driver was given (:mod:`sparse_core.kernels.launch_plan`). A call of many kernels,
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

from sparse_core.errors import ImplementationError
from sparse_core.kernels import launch_plan as relaunch
from sparse_core.kernels import nvrtc
from sparse_core.kernels.launch_plan import Clearing, Launch, Relaunch, Span

_KERNEL, _MEMSET = 0, 2  # CU_GRAPH_NODE_TYPE_
#: A call of more takes the device longer than the host.
_MOST_NODES = 4
#: ``CU_LAUNCH_ATTRIBUTE_``: COOPERATIVE, CLUSTER_DIMENSION, CLUSTER_SCHEDULING_POLICY_PREFERENCE,
#: PREFERRED_CLUSTER_DIMENSION and PREFERRED_SHARED_MEMORY_CARVEOUT.
_ATTRIBUTES = (2, 4, 5, 11, 14)
_VALUE_BYTES = 64
#: ``CU_LAUNCH_PARAM_BUFFER_POINTER`` and ``_SIZE``, which stand before what they name.
_BUFFER, _BUFFER_SIZE = 1, 2

_TRIES = 3

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


class _Memset(ctypes.Structure):
    """``CUDA_MEMSET_NODE_PARAMS``."""

    _fields_ = [
        ("address", ctypes.c_uint64),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("element", ctypes.c_uint),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    ]


Scratch = Callable[[int], Span]
"""Memory that a call uses beside its operands, of a stream (``CUstream`` as an integer)."""


def record(
    call: Callable[[Tensor], Tensor],
    given: Tensor,
    fixed: Sequence[Tensor | None],
    scratch: Scratch | None = None,
) -> Relaunch | None:
    """A function of a stream and addresses of an input, a result and scratch memory: what ``call`` does.

    Args:
        call: gives its result for an input; enqueues on the current stream, and reads nothing on the host.
        given: an input; of the same shape and type are all others, and as much aligned. It is not read.
        fixed: other tensors that the call reads, which must stay where they are.
        scratch: memory that is of no use after the call, where it has any.

    Returns:
        None where the call is more than a few kernels, or their arguments are not understood.
    """
    device = given.device
    if torch.cuda.is_current_stream_capturing() or not relaunch.available():
        return None
    try:
        with _recording, torch.cuda.device(device), torch.no_grad():
            spans = [Span.of(one) for one in fixed if one is not None]
            # What pads arguments is left as it was in memory, and may tell two launches apart.
            tries = (_record(call, given, spans, scratch) for _ in range(_TRIES))
            return next((found for found in tries if found is not None), None)
    except (ImplementationError, RuntimeError, AttributeError):
        # No memory for two more inputs and results, an operation that cannot be recorded, an old driver.
        return None


def _record(
    call: Callable[[Tensor], Tensor], given: Tensor, fixed: Sequence[Span], scratch: Scratch | None
) -> Relaunch | None:
    enqueued, spans, results = [], [], []
    inputs = [torch.zeros_like(given) for _ in range(2)]
    for turn, one in enumerate(inputs):
        # Scratch memory is that of a stream, and has to be at two addresses.
        stream = _side_stream(given.device, 0 if scratch is None else turn)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            if turn == 0 or scratch is not None:
                call(one)  # What is allocated at a first call on a stream must not be of the graph.
            nodes, made = _captured(call, one)
        torch.cuda.current_stream().wait_stream(stream)
        if nodes is None:
            return None
        enqueued.append(nodes)
        results.append(made)  # Else the second could get the same memory.
        more = [] if scratch is None else [scratch(stream.cuda_stream)]
        spans.append([Span.of(one), Span.of(made), *more])
    return relaunch.repeated(enqueued[0], enqueued[1], spans[0], spans[1], fixed)


def _captured(
    call: Callable[[Tensor], Tensor], given: Tensor
) -> tuple[list[Launch | Clearing] | None, Tensor]:
    """What a call enqueues, and its result, which is never computed."""
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    graph.capture_begin(pool=_pool(given.device), capture_error_mode="thread_local")
    try:
        made = call(given)
    finally:
        graph.capture_end()
    _kept[given.device] = graph
    return read_graph(graph.raw_cuda_graph()), made


def read_graph(graph: int) -> list[Launch | Clearing] | None:
    """Launches and memory set to zero of a graph (``CUgraph`` as an integer), in their order.

    Returns:
        None of a graph with anything else, or of more than four nodes, or of nodes that do not follow one
        another.
    """
    driver, handle = nvrtc.driver(), ctypes.c_void_p(graph)
    count = ctypes.c_size_t()
    _check(driver.cuGraphGetNodes(handle, None, ctypes.byref(count)))
    if not 1 <= count.value <= _MOST_NODES:
        return None
    nodes = (ctypes.c_void_p * count.value)()
    _check(driver.cuGraphGetNodes(handle, nodes, ctypes.byref(count)))
    after = {_node_before(node): node for node in nodes if node is not None}
    found: list[Launch | Clearing] = []
    node = after.get(None)
    while node is not None and len(found) < len(nodes):
        read = _read_node(ctypes.c_void_p(node))
        if read is None:
            return None
        found.append(read)
        node = after.get(node)
    return found if len(found) == len(nodes) else None


def _node_before(node: int) -> int | None:
    """The node that another waits for; None for the first."""
    count = ctypes.c_size_t(_MOST_NODES)
    found = (ctypes.c_void_p * _MOST_NODES)()
    ask = nvrtc.driver().cuGraphNodeGetDependencies
    _check(ask(ctypes.c_void_p(node), found, ctypes.byref(count)))
    if count.value > 1:
        raise ImplementationError("a recorded call is no chain of launches")
    return found[0] if count.value else None


def _read_node(node: ctypes.c_void_p) -> Launch | Clearing | None:
    driver = nvrtc.driver()
    kind = ctypes.c_int()
    _check(driver.cuGraphNodeGetType(node, ctypes.byref(kind)))
    if kind.value == _MEMSET:
        return _read_memset(node)
    if kind.value != _KERNEL:
        return None
    found = _Node()
    _check(driver.cuGraphKernelNodeGetParams_v2(node, ctypes.byref(found)))
    function = found.kernel or found.function
    if function is None:
        return None
    packed = not found.arguments
    arguments = _packed_arguments(found) if packed else _arguments(found, function)
    grid, block = (
        (found.grid[0], found.grid[1], found.grid[2]),
        (found.block[0], found.block[1], found.block[2]),
    )
    return Launch(function, grid, block, found.shared_bytes, _attributes(node), tuple(arguments), packed)


def _read_memset(node: ctypes.c_void_p) -> Clearing | None:
    found = _Memset()
    _check(nvrtc.driver().cuGraphMemsetNodeGetParams(node, ctypes.byref(found)))
    if found.value or found.height != 1:
        return None
    return Clearing(found.address, found.element * found.width)


def _arguments(found: _Node, function: int) -> list[bytes]:
    sizes = relaunch.argument_sizes(function, is_kernel=bool(found.kernel))
    return [ctypes.string_at(found.arguments[index] or 0, size) for index, size in enumerate(sizes)]


def _packed_arguments(found: _Node) -> list[bytes]:
    """All arguments in one piece, as some libraries hand them over."""
    named: dict[int, int] = {}
    index = 0
    while found.extra and (key := found.extra[index]):
        named[key] = found.extra[index + 1] or 0
        index += 2
    if _BUFFER not in named or _BUFFER_SIZE not in named:
        raise ImplementationError("a recorded launch does not show its arguments")
    size = ctypes.c_size_t.from_address(named[_BUFFER_SIZE]).value
    return [ctypes.string_at(named[_BUFFER], size)]


def _attributes(node: ctypes.c_void_p) -> bytes:
    """Those of a kernel's node that its launch needs."""
    driver, found = nvrtc.driver(), b""
    value = (ctypes.c_char * _VALUE_BYTES)()
    for number in _ATTRIBUTES:
        ctypes.memset(value, 0, _VALUE_BYTES)
        status = driver.cuGraphKernelNodeGetAttribute(node, ctypes.c_int(number), ctypes.byref(value))
        if status or not any(value.raw):
            continue
        found += number.to_bytes(8, "little") + value.raw
    return found


def _check(status: int) -> None:
    nvrtc.check(status, "reading a recorded launch")


@cache
def _pool(device: torch.device) -> Any:
    return torch.cuda.graph_pool_handle()


@cache
def _side_stream(device: torch.device, number: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
