"""Attention with gradients by launch plans: launches, bits, and operands that need the ordinary way."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from triton_scripts import run_script

from sparse_core.attention import BlockPattern, local_window, sparse_attention
from sparse_core.kernels.launch_plan import SWITCH

SCRIPT = Path(__file__).with_name("compare_training_plans.py")
REPOSITORY = Path(__file__).parents[3]
FORWARD, QUERIES, KEYS = "forward_kernel", "query_gradient_kernel", "key_gradient_kernel"


def test_plans_have_the_bits_of_ordinary_calls_and_three_launches() -> None:
    report = run_script(SCRIPT, REPOSITORY, interpret=True)
    assert sorted(report) == ["grouped", "one tensor", "queries", "window"]
    for case, found in report.items():
        backward = [QUERIES] if case == "queries" else [QUERIES, KEYS]
        assert found["same"] == [True] * 4, case
        # The first passes, and the backward pass for the last gradient, record.
        assert found["ordinary"] == [FORWARD, *backward, *backward], case
        assert found["planned"] == [FORWARD, *backward] * 2 + [FORWARD], case


def operands(length: int, dtype: torch.dtype, dim: int = 64) -> list[Tensor]:
    return [torch.randn(2, 4, length, dim, device="cuda", dtype=dtype).requires_grad_() for _ in range(3)]


def passes(pattern: BlockPattern, given: list[Tensor], gradient: Tensor) -> list[Tensor]:
    out = sparse_attention(*given, pattern)  # type: ignore[call-overload]
    return [out.detach(), *torch.autograd.grad(out, given, gradient)]


def plans(pattern: BlockPattern) -> list[object]:
    from sparse_core.attention.gpu.training_plans import TrainingPlan

    launches = pattern.plans["blocks"].launches  # type: ignore[attr-defined]
    return [one for one in launches.values() if isinstance(one, TrainingPlan)]


@pytest.mark.gpu
@pytest.mark.parametrize("dim", [64, 128, 80])
@pytest.mark.parametrize("length", [512, 1000])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_same_bits_on_a_gpu(
    cuda: torch.device, dtype: torch.dtype, length: int, dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = local_window(length, window=length // 4, block_size=64).to(cuda)
    other = local_window(length, window=length // 4, block_size=64).to(cuda)
    for step in range(7):
        given = operands(length, dtype, dim)
        gradient = torch.randn_like(given[0])
        if step == 6:
            gradient = gradient.transpose(1, 2).contiguous().transpose(1, 2)
        monkeypatch.setenv(SWITCH, "1")
        found = passes(pattern, given, gradient)
        monkeypatch.setenv(SWITCH, "0")
        expected = passes(other, given, gradient)
        assert all(map(torch.equal, found, expected)), step
    (plan,) = plans(pattern)
    assert callable(plan._forward)  # type: ignore[attr-defined]
    assert [callable(one) for one in plan._backward.values()] == [True, True]  # type: ignore[attr-defined]
    assert plans(other) == []


@pytest.mark.gpu
def test_other_uses_on_a_gpu(cuda: torch.device) -> None:
    """Sums, second derivatives, views, graphs and frozen keys after a plan was made."""
    pattern = local_window(512, window=128, block_size=64).to(cuda)
    q, k, v = operands(512, torch.float16)
    for _ in range(6):
        out = sparse_attention(q, k, v, pattern)
        total = torch.autograd.grad(out.sum(), (q, k, v))
        passes(pattern, [q, k, v], torch.randn_like(q))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, "0")
        other = local_window(512, window=128, block_size=64).to(cuda)
        expected = passes(other, [q, k, v], torch.ones_like(q))
    assert all(map(torch.equal, total, expected[1:]))
    out = sparse_attention(q, k, v, pattern)
    (first,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="cannot differentiate twice"):
        torch.autograd.grad(first.sum(), q)
    frozen_k, frozen_v = k.detach(), v.detach()
    for _ in range(6):
        (of_q,) = torch.autograd.grad(sparse_attention(q, frozen_k, frozen_v, pattern).sum(), q)
    assert torch.equal(of_q, total[0])
    gradient = torch.ones_like(q)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        # Gradients are accumulated on the stream where a leaf was first used; a capture needs its own.
        leaves = [tensor.detach().requires_grad_() for tensor in (q, k, v)]
        captured = passes(pattern, leaves, gradient)
    graph.replay()
    torch.cuda.synchronize()
    assert all(map(torch.equal, captured, expected))
    assert torch.equal(sparse_attention(q.detach(), k.detach(), v.detach(), pattern), expected[0])
