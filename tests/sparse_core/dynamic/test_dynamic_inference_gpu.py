"""Activations, experts, exits and levels on a GPU against the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sparse_core.dynamic.activations.predictor import PredictedFeedForward
from sparse_core.dynamic.activations.thresholds import (
    AbsoluteThreshold,
    LearnedThreshold,
    LocalThreshold,
    PercentileThreshold,
    ThresholdActivation,
)
from sparse_core.dynamic.activations.top_k import TopKActivation, top_k_mask
from sparse_core.dynamic.inference.calibration import (
    calibration_error,
    fit_temperature,
    threshold_for_accuracy,
)
from sparse_core.dynamic.inference.conditional import ConditionalBlock
from sparse_core.dynamic.inference.early_exit import EarlyExit
from sparse_core.dynamic.inference.experts import MixtureOfExperts
from sparse_core.dynamic.inference.levels import prepare_levels

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


@pytest.mark.parametrize(
    "rule",
    [
        AbsoluteThreshold(0.5),
        PercentileThreshold(70),
        PercentileThreshold(70, per_row=False),
        LocalThreshold(0.5),
        LocalThreshold(0.5, window=5),
    ],
)
def test_thresholds(rule, cuda: torch.device) -> None:
    _compare(ThresholdActivation(rule), torch.randn(9, 64, dtype=torch.float64), cuda)


def test_learned_thresholds(cuda: torch.device) -> None:
    layer = LearnedThreshold(0.8, channels=64).double()
    _compare(layer, torch.randn(40, 64, dtype=torch.float64), cuda)


@pytest.mark.parametrize("share", ["batch", "row"])
def test_predicted_blocks(share: str, cuda: torch.device) -> None:
    torch.manual_seed(0)
    layer = PredictedFeedForward(24, 128, 16, block_size=16, keep=3, share=share, rank=8).double()  # type: ignore[arg-type]
    _compare(layer, torch.randn(50, 24, dtype=torch.float64), cuda)


def test_conditional_blocks(cuda: torch.device) -> None:
    torch.manual_seed(0)
    layer = ConditionalBlock(nn.Linear(16, 16), 16).double()
    _compare(layer, torch.randn(4, 20, 16, dtype=torch.float64), cuda)


@pytest.mark.parametrize("k", [1, 2])
def test_experts(k: int, cuda: torch.device) -> None:
    torch.manual_seed(0)
    _compare(
        MixtureOfExperts(16, 32, experts=5, k=k).double(), torch.randn(60, 16, dtype=torch.float64), cuda
    )


def test_experts_in_one_launch(cuda: torch.device) -> None:
    torch.manual_seed(0)
    here = MixtureOfExperts(64, 128, experts=6, k=2)
    with torch.no_grad():
        # Nobody chooses the last two experts.
        here.router.weight[4:] = here.router.weight[:2] - 1e3 * here.router.weight[:2].sign()
    there = copy.deepcopy(here).to(cuda, torch.bfloat16)
    here = copy.deepcopy(there).to("cpu", torch.float32)
    x = torch.rand(300, 64).bfloat16().float()
    with torch.no_grad():
        here.router.weight[4:] = -5.0
        there.router.weight[4:] = -5.0
    expected, found = here(x), there(x.to(cuda, torch.bfloat16))
    assert here.load is not None
    assert there.load is not None
    assert here.load[4:].tolist() == there.load[4:].tolist() == [0, 0]
    # Rows whose second and third choice are as good to bfloat16 go elsewhere.
    close = (found.float().cpu() - expected).norm(dim=1) < 0.03 * expected.norm(dim=1)
    assert float(close.float().mean()) > 0.9
    leaf, wanted = x.to(cuda, torch.bfloat16), [there.expand, there.contract_bias]
    gradients = [torch.autograd.grad(there(leaf).float().square().sum(), wanted) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    assert all(bool(part.isfinite().all()) for part in gradients[0])
    assert float(gradients[0][0][4:].abs().sum()) == 0
    assert float(gradients[0][1][4:].abs().sum()) == 0
    assert float(gradients[0][0][:4].abs().amax(dim=(1, 2)).min()) > 0


def test_what_promises_not_to_wait_does_not(cuda: torch.device) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 64, device=cuda)
    half = x.bfloat16()
    experts = MixtureOfExperts(64, 64, experts=4).to(cuda, torch.bfloat16)
    feed = PredictedFeedForward(64, 256, 64, keep=2).to(cuda)
    gate = ConditionalBlock(nn.Linear(64, 64), 64).to(cuda)
    runs: list[Callable[[], object]] = [
        lambda: experts(half).sum().backward(),
        lambda: feed(x).sum().backward(),
        lambda: gate(x).sum().backward(),
        lambda: top_k_mask(x, 5),
        lambda: PercentileThreshold(50).mask(x),
        lambda: LocalThreshold(1.0, window=5).mask(x),
    ]
    for run in runs:
        run()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for run in runs:
            run()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_early_exits(cuda: torch.device) -> None:
    torch.manual_seed(0)
    network = EarlyExit([nn.Linear(8, 8), nn.Linear(8, 8)], [nn.Linear(8, 3), nn.Linear(8, 3)]).double()
    x, labels = torch.randn(200, 8, dtype=torch.float64), torch.randint(3, (200,))
    there = copy.deepcopy(network).to(cuda)
    report = network.calibrate([(x, labels)], accuracy=0.4)
    again = there.calibrate([(x.to(cuda), labels.to(cuda))], accuracy=0.4)
    assert report.taken == again.taken
    assert report.thresholds == pytest.approx(again.thresholds)
    here, found = network.eval()(x), there.eval()(x.to(cuda))
    assert len(here.exits.unique()) == 2
    assert torch.equal(found.exits.cpu(), here.exits)
    assert torch.allclose(found.logits.cpu(), here.logits)


def test_calibration(cuda: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(500, 4, generator=generator), torch.randint(4, (500,), generator=generator)
    assert fit_temperature(logits.to(cuda), labels.to(cuda)) == pytest.approx(fit_temperature(logits, labels))
    confidence, right = torch.rand(5000, generator=generator), torch.rand(5000, generator=generator) < 0.6
    here = calibration_error(confidence, right)
    there = [calibration_error(confidence.to(cuda), right.to(cuda)) for _ in range(3)]
    assert there[0] == pytest.approx(here)
    assert len(set(there)) == 1
    assert threshold_for_accuracy(confidence.to(cuda), right.to(cuda), 0.61) == threshold_for_accuracy(
        confidence, right, 0.61
    )


def test_levels(cuda: torch.device) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).eval()
    here, there = prepare_levels(model), prepare_levels(copy.deepcopy(model).to(cuda))
    x = torch.randn(40, 64)
    for name in here:
        found = there[name](x.to(cuda)).cpu()
        assert torch.allclose(found, here[name](x), atol=5e-3, rtol=5e-3), name
