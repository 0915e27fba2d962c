"""Calls of libraries recorded as their kernel: the same bits without the library, or nothing."""

from __future__ import annotations

import ctypes

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from sparse_core.kernels import nvrtc
from sparse_core.kernels.launch_plan import Span
from sparse_core.kernels.recording import record

pytestmark = pytest.mark.gpu


def given(cuda: torch.device, rows: int = 256, columns: int = 512) -> Tensor:
    return torch.randn(rows, columns, device=cuda, dtype=torch.float16)


def raised(x: Tensor) -> Tensor:
    return x + 1.5


def test_one_kernel_is_launched_again(cuda: torch.device) -> None:
    x, other = given(cuda), given(cuda)
    run = record(raised, x, ())
    assert run is not None
    made = torch.full_like(x, float("nan"))
    for one in (x, other):
        run(torch.cuda.current_stream(cuda).cuda_stream, one.data_ptr(), made.data_ptr())
        assert torch.equal(made, raised(one))


def test_a_tensor_beside_it_has_to_be_named(cuda: torch.device) -> None:
    x, more = given(cuda), given(cuda)
    assert record(lambda one: one + more, x, ()) is None
    run = record(lambda one: one + more, x, (more, None))
    assert run is not None
    made = torch.empty_like(x)
    run(torch.cuda.current_stream(cuda).cuda_stream, x.data_ptr(), made.data_ptr())
    assert torch.equal(made, x + more)


def test_memory_between_kernels_is_left_alone(cuda: torch.device) -> None:
    """Nobody says what becomes of it."""
    assert record(lambda x: torch.relu(-x), given(cuda), ()) is None


def test_kernels_with_scratch_memory(cuda: torch.device) -> None:
    kept: dict[int, Tensor] = {}

    def between() -> Tensor:
        stream = torch.cuda.current_stream(cuda).cuda_stream
        if stream not in kept:
            kept[stream] = given(cuda)
        return kept[stream]

    def call(x: Tensor) -> Tensor:
        half = between()
        stream = torch.cuda.current_stream(cuda).cuda_stream
        eight_rows = half[:8].numel() * half.element_size()
        nvrtc.driver().cuMemsetD8Async(
            ctypes.c_uint64(half.data_ptr()),
            ctypes.c_ubyte(0),
            ctypes.c_size_t(eight_rows),
            ctypes.c_void_p(stream),
        )
        torch.neg(x[8:], out=half[8:])
        return raised(half)

    x, other = given(cuda), given(cuda)
    run = record(call, x, (), lambda stream: Span.of(kept[stream]))
    assert run is not None
    scratch, made = torch.full_like(x, float("nan")), torch.full_like(x, float("nan"))
    for one in (x, other):
        addresses = (one.data_ptr(), made.data_ptr(), scratch.data_ptr())
        run(torch.cuda.current_stream(cuda).cuda_stream, *addresses)
        assert torch.equal(made, call(one))


def test_what_is_no_launch_is_left_alone(cuda: torch.device) -> None:
    x, elsewhere = given(cuda), given(cuda)
    assert record(lambda one: elsewhere.copy_(one), x, (elsewhere,)) is None
    assert record(lambda one: one + elsewhere.fill_(1), x, ()) is None


def test_nothing_is_recorded_while_a_graph_is_captured(cuda: torch.device) -> None:
    x = given(cuda)
    torch.neg(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run = record(raised, x, ())
        made = x.neg()
    assert run is None
    graph.replay()
    assert torch.equal(made, -x)


def test_a_product_of_the_library_keeps_its_bits(cuda: torch.device) -> None:
    x, weight, bias = given(cuda, 512, 1024), given(cuda, 768, 1024), given(cuda, 1, 768)[0]
    run = record(lambda one: linear(one, weight, bias), x, (weight, bias))
    if run is None:
        pytest.skip("this product takes more than a kernel here")
    made = torch.full((512, 768), float("nan"), device=cuda, dtype=torch.float16)
    for _ in range(3):
        x = given(cuda, 512, 1024)
        run(torch.cuda.current_stream(cuda).cuda_stream, x.data_ptr(), made.data_ptr())
        assert torch.equal(made, linear(x, weight, bias))


def test_recording_takes_memory_once(cuda: torch.device) -> None:
    x = given(cuda, 2048, 2048)
    record(raised, x, ())
    before = torch.cuda.memory_reserved(cuda)
    for _ in range(20):
        assert record(raised, x, ()) is not None
    assert torch.cuda.memory_reserved(cuda) <= before + (64 << 20)
