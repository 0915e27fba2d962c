"""Attention by a launch plan gives the bits of an ordinary call, or makes an ordinary call."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sparse_core.attention import BlockPattern, local_window, per_sequence, sparse_attention
from sparse_core.attention.gpu import hopper
from sparse_core.kernels.launch_plan import SWITCH, LaunchPlan

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]


@pytest.fixture(autouse=True)
def on_hopper(cuda: torch.device) -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the CUDA kernel is for compute capability 9.0")


def operands(
    length: int = 512, *, heads: int = 4, batch: int = 2, dtype: torch.dtype = torch.float16
) -> list[Tensor]:
    return [torch.randn(batch, heads, length, 64, device="cuda", dtype=dtype) for _ in range(3)]


def window(length: int = 512) -> BlockPattern:
    return local_window(length, window=length // 4, block_size=64).to("cuda")


def ordinary(q: Tensor, k: Tensor, v: Tensor, pattern: BlockPattern, scale: float | None = None) -> Tensor:
    """Call the named implementation, which has no plan."""
    return sparse_attention(q, k, v, pattern, scale=scale, impl="cuda")


def plans(pattern: BlockPattern) -> list[object]:
    launches = pattern.plans["blocks"].launches  # type: ignore[attr-defined]
    return [one for one in launches.values() if not isinstance(one, hopper.Launch)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_same_bits_with_other_tensors(dtype: torch.dtype) -> None:
    pattern = window()
    for _ in range(4):
        q, k, v = operands(dtype=dtype)
        assert torch.equal(sparse_attention(q, k, v, pattern), ordinary(q, k, v, pattern))
        assert torch.equal(sparse_attention(q, k, v, pattern, scale=0.3), ordinary(q, k, v, pattern, 0.3))
    assert [type(one) for one in plans(pattern)] == [LaunchPlan, LaunchPlan]


def test_views_of_one_tensor() -> None:
    """Views of one tensor, as after one product for queries, keys and values."""
    pattern = window()
    for _ in range(3):
        q, k, v = torch.randn(2, 512, 3, 4, 64, device="cuda", dtype=torch.float16).permute(2, 0, 3, 1, 4)
        assert torch.equal(sparse_attention(q, k, v, pattern), ordinary(q, k, v, pattern))
    assert isinstance(plans(pattern)[0], LaunchPlan)
    odd = (
        torch.randn(q.numel() + 1, device="cuda", dtype=torch.float16)[1:].view(2, 512, 4, 64).transpose(1, 2)
    )
    expected = ordinary(odd.clone(), k, v, pattern)
    assert torch.allclose(sparse_attention(odd, k, v, pattern), expected, atol=2e-3)


def test_gradients_take_the_ordinary_way() -> None:
    pattern = window()
    q, k, v = operands()
    for _ in range(3):
        plain = sparse_attention(q, k, v, pattern)
    followed = q.clone().requires_grad_()
    made = sparse_attention(followed, k, v, pattern)
    assert torch.equal(made, plain)
    made.sum().backward()
    assert followed.grad is not None
    assert followed.grad.abs().sum() > 0
    with torch.inference_mode():
        assert torch.equal(sparse_attention(q, k, v, pattern), plain)


def test_errors_stay() -> None:
    pattern = window()
    q, k, v = operands()
    for _ in range(3):
        sparse_attention(q, k, v, pattern)
    with pytest.raises(ValueError, match="v must have the shape of k"):
        sparse_attention(q, k, v[:, :, :-64], pattern)
    with pytest.raises(TypeError, match="same dtype"):
        sparse_attention(q, k.bfloat16(), v, pattern)
    with pytest.raises(ValueError, match="k is on cpu"):
        sparse_attention(q, k.cpu(), v, pattern)
    with pytest.raises(ValueError, match="for these lengths"):
        sparse_attention(*operands(448), pattern)


def test_rows_that_are_cut_and_patterns_of_sequences_have_no_plan() -> None:
    """The first take several launches, the second have another layout."""
    long = local_window(8192, window=4096, block_size=64).to("cuda")
    q, k, v = operands(8192, heads=1, batch=1)
    for _ in range(3):
        assert torch.equal(sparse_attention(q, k, v, long), ordinary(q, k, v, long))
    assert plans(long) == [False]
    each = per_sequence([window(), local_window(512, window=64, block_size=64).to("cuda")], heads=4)
    q, k, v = operands()
    for _ in range(3):
        assert torch.equal(sparse_attention(q, k, v, each), ordinary(q, k, v, each))
    assert plans(each) == [False]


def test_a_graph_has_it() -> None:
    pattern = window()
    q, k, v = operands()
    for _ in range(3):
        expected = sparse_attention(q, k, v, pattern)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = sparse_attention(q, k, v, pattern)
    graph.replay()
    assert torch.equal(captured, expected)


def test_switching_plans_off_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = operands()
    monkeypatch.setenv(SWITCH, "0")
    off = window()
    without = [sparse_attention(q, k, v, off) for _ in range(4)]
    assert plans(off) == [False]
    monkeypatch.setenv(SWITCH, "1")
    on = window()
    made = [sparse_attention(q, k, v, on) for _ in range(4)]
    assert [type(one) for one in plans(on)] == [LaunchPlan]
    assert all(torch.equal(one, without[0]) for one in (*without, *made))
