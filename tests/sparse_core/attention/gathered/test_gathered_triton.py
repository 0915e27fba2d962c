"""Compare the kernels of gathered attention with float64, and test them on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from triton_scripts import run_script

from sparse_core.attention.gathered.api import gathered_attention

SCRIPT = Path(__file__).with_name("compare_gathered.py")

#: Largest error, as a share of the largest number, beside twice that of torch: a rounding of the result.
ROUNDING = {name: torch.finfo(getattr(torch, name)).eps for name in ("float16", "bfloat16", "float32")}


def check(report: dict[str, Any], *, interpreted: bool, cases: int) -> None:
    assert report["interpreted"] is interpreted
    assert [name for name, right in report["checks"].items() if not right] == []
    assert len(report["checks"]) == 6
    assert len(report["cases"]) == cases
    wrong = []
    for case, tensors in report["cases"].items():
        rounding = next(eps for name, eps in ROUNDING.items() if f"torch.{name}" in case)
        for name, (error, theirs, largest) in tensors.items():
            if name == "lse":
                allowed = 4 * ROUNDING["float32"] * max(1.0, largest)
            elif case.endswith("lse") and theirs:
                # Backward takes the weights from lse, as that of every fused attention: rounded to float32,
                # it spoils all weights of a query by as much as it is large.
                allowed = 2 * theirs + rounding * (1.0 + tensors["lse"][2]) * max(1.0, largest)
            elif case.endswith("lse"):  # torch has no gradient of lse
                allowed = 4 * rounding * max(1.0, largest)
            else:
                allowed = 2 * theirs + rounding * max(1.0, largest)
            if not error <= allowed:
                wrong.append(f"{case}: {name} {error:.2e}, allowed {allowed:.2e}")
    assert wrong == []


@pytest.mark.usefixtures("one_thread")
def test_interpreted_kernels(repository: Path) -> None:
    check(run_script(SCRIPT, repository, "cpu", interpret=True), interpreted=True, cases=10)


@pytest.mark.gpu
def test_compiled_kernels(cuda: torch.device, repository: Path) -> None:
    check(run_script(SCRIPT, repository, "cuda", interpret=False), interpreted=False, cases=72)


def random_case(
    device: torch.device, dtype: torch.dtype, *, list_heads: int, keys: int = 700
) -> tuple[list[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 16, 2000, 64), (2, 4, keys, 64), (2, 4, keys, 64))
    tensors = [torch.randn(shape, generator=generator).to(device, dtype).requires_grad_() for shape in shapes]
    index = torch.randint(-1, keys, (2, list_heads, 2000, 32), generator=generator)
    return tensors, index.to(device, torch.int32)


def everything(tensors: list[Tensor], index: Tensor) -> list[Tensor]:
    out, lse = gathered_attention(*tensors, index, return_lse=True)
    return [out, lse, *torch.autograd.grad(out.float().square().sum() + lse.sum(), tensors)]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("list_heads", [1, 16])
@pytest.mark.parametrize("keys", [3, 700])
def test_repeats_to_the_bit(cuda: torch.device, dtype: torch.dtype, list_heads: int, keys: int) -> None:
    tensors, index = random_case(cuda, dtype, list_heads=list_heads, keys=keys)
    first = everything(tensors, index)
    for _ in range(3):
        assert all(torch.equal(*pair) for pair in zip(first, everything(tensors, index), strict=True))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
@pytest.mark.parametrize("list_heads", [1, 16])
def test_replays_in_a_cuda_graph(cuda: torch.device, list_heads: int) -> None:
    """Replay forward and backward with other values and list lengths than at capture."""
    tensors, index = random_case(cuda, torch.bfloat16, list_heads=list_heads)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        everything(tensors, index)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = everything(tensors, index)
    with torch.no_grad():
        for tensor in tensors:
            tensor.copy_(torch.randn_like(tensor))
        index[:, :, ::2] = index[:, :, ::2].clamp(max=5)
        index[:, :, 1::4] = -1
    graph.replay()
    expected = everything(tensors, index)
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("list_heads", [1, 4])
def test_never_waits_for_the_device(cuda: torch.device, list_heads: int) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(1, 4, 90, 32, generator=generator).to(cuda).requires_grad_() for _ in range(3)]
    index = torch.randint(-1, 90, (1, list_heads, 90, 8), generator=generator).to(cuda)
    everything(tensors, index)
    try:
        torch.cuda.set_sync_debug_mode("error")
        everything(tensors, index)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("list_heads", [1, 2])
def test_a_key_that_everybody_attends_to(cuda: torch.device, dtype: torch.dtype, list_heads: int) -> None:
    """The gradient of a key with 20,000 queries is summed in float32, in parts."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 2, 20_000, 64, generator=generator).to(cuda, dtype).requires_grad_()
    k, v = (torch.randn(1, 1, 50, 64, generator=generator).to(cuda, dtype).requires_grad_() for _ in "kv")
    index = torch.randint(0, 50, (1, list_heads, 20_000, 4), generator=generator).to(cuda)
    index[..., 0] = 17
    weight = torch.randn(q.shape, generator=generator).to(cuda, dtype)
    exact = [one.detach().double().requires_grad_() for one in (q, k, v)]
    expected = torch.autograd.grad(gathered_attention(*exact, index), exact, weight.double())
    found = torch.autograd.grad(gathered_attention(q, k, v, index), (q, k, v), weight)
    for one, other in zip(found, expected, strict=True):
        bound = 4 * torch.finfo(dtype).eps * float(other.abs().max())
        assert float((one.double() - other).abs().max()) <= bound


@pytest.mark.gpu
def test_auto_takes_the_kernels(cuda: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    from sparse_core.attention.gathered import gradient, reference

    (q, k, v), index = random_case(cuda, torch.bfloat16, list_heads=1)
    with torch.autocast("cuda", dtype=torch.float16):
        inside = gathered_attention(q, k, v, index)
    assert torch.equal(inside, gathered_attention(q, k, v, index, impl="triton"))
    exact = gathered_attention(q.double(), k.double(), v.double(), index)
    torch.testing.assert_close(inside.double(), exact, rtol=0.0, atol=0.02)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the other implementation ran")

    with monkeypatch.context() as patch:
        patch.setattr(reference, "gathered_attention", refuse)
        gathered_attention(q, k, v, index)
    monkeypatch.setattr(gradient, "gathered_attention", refuse)
    gathered_attention(q.double(), k.double(), v.double(), index)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a warning of torch's compiler
def test_in_a_compiled_function(cuda: torch.device) -> None:
    """One graph, and the same bits."""
    tensors, index = random_case(cuda, torch.bfloat16, list_heads=1)

    def read(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return gathered_attention(q * 2, k, v, index)

    results = []
    for function in (read, torch.compile(read, fullgraph=True)):
        out = function(*tensors)
        results.append([out, *torch.autograd.grad(out, tensors, torch.ones_like(out))])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=0.0)
