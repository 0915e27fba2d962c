"""Top-k activations on a GPU: the results of the CPU, without waits."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from sparse_core.dynamic.top_k import TopKActivation, top_k_mask

# The mode that finds waits says so once a process.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Synchronization debug mode")]


def _compare(layer: nn.Module, x: Tensor, cuda: torch.device, atol: float = 1e-10) -> None:
    """Result and all gradients, here and there; twice there, to the bit."""
    ends = []
    for device in (torch.device("cpu"), cuda, cuda):
        twin = copy.deepcopy(layer).to(device)
        leaf = x.to(device).requires_grad_()
        y = twin(leaf)
        gradients = torch.autograd.grad(
            y.square().sum(), [leaf, *twin.parameters()], allow_unused=True, materialize_grads=True
        )
        ends.append([y.detach(), *gradients])
    for here, there, again in zip(*ends, strict=True):
        assert torch.allclose(there.cpu(), here, atol=atol)
        assert torch.equal(there, again)


@pytest.mark.parametrize("gradient", ["kept", "straight-through"])
@pytest.mark.parametrize("granularity", ["row", "channel", "block"])
def test_top_k(granularity: str, gradient: str, cuda: torch.device) -> None:
    layer = TopKActivation(3, granularity=granularity, block_size=4, gradient=gradient)  # type: ignore[arg-type]
    _compare(layer, torch.randn(9, 16, 32, dtype=torch.float64), cuda)


def test_equal_scores_go_to_the_first_on_both_devices(cuda: torch.device) -> None:
    x = torch.randint(-2, 3, (50, 200), generator=torch.Generator().manual_seed(0)).float()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert torch.equal(top_k_mask(x.to(cuda, dtype), 40).cpu(), top_k_mask(x.to(dtype), 40))


def test_a_mask_does_not_wait_for_the_device(cuda: torch.device) -> None:
    x = torch.randn(64, 64, device=cuda)
    top_k_mask(x, 5)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        top_k_mask(x, 5)
    finally:
        torch.cuda.set_sync_debug_mode("default")
