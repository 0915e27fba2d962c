"""Calls of libraries recorded as their kernel: the same bits without the library, or nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from sparse_core.recording import record

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


def test_several_kernels_are_left_alone(cuda: torch.device) -> None:
    assert record(lambda x: torch.relu(-x), given(cuda), ()) is None


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
