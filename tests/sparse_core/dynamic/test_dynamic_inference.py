"""Early exits, conditional blocks and experts against what they stand for, computed without any of it."""

from __future__ import annotations

import copy
import math
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from sparse_core.dynamic.activations.predictor import PredictedFeedForward
from sparse_core.dynamic.inference.calibration import (
    calibration_error,
    confidence_of,
    fit_temperature,
    threshold_for_accuracy,
)
from sparse_core.dynamic.inference.conditional import ConditionalBlock
from sparse_core.dynamic.inference.early_exit import EarlyExit, ExitResult
from sparse_core.dynamic.inference.experts import MixtureOfExperts


def _drawn(count: int, sharper: float) -> tuple[Tensor, Tensor]:
    """Logits that are ``sharper`` times too sure of labels drawn from them."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(count, 5, generator=generator) * 1.5
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return logits * sharper, labels


@pytest.mark.parametrize("sharper", [0.5, 1.0, 3.0])
def test_the_temperature_undoes_too_much_certainty(sharper: float) -> None:
    logits, labels = _drawn(6000, sharper)
    temperature = fit_temperature(logits, labels)
    assert math.isclose(temperature, sharper, rel_tol=0.06)
    losses = [
        float(nn.functional.cross_entropy(logits.double() / t, labels))
        for t in (temperature, temperature * 1.01, temperature / 1.01)
    ]
    assert losses[0] <= min(losses)
    right = logits.argmax(1) == labels
    before, after = (calibration_error(confidence_of(logits, t), right) for t in (1.0, temperature))
    assert after < 0.02
    assert sharper == 1.0 or before > 2 * after


def test_calibration_error_by_hand() -> None:
    # Bins of a half: 0.2, 0.4 with none right: gap 0.6; 0.9, 0.7 with one right: gap 0.6; over 4 rows.
    confidence = torch.tensor([0.2, 0.4, 0.9, 0.7])
    right = torch.tensor([False, False, True, False])
    assert math.isclose(calibration_error(confidence, right, bins=2), 0.3, rel_tol=1e-6)


def test_thresholds_by_hand() -> None:
    confidence = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.5], dtype=torch.float64)
    right = torch.tensor([True, True, False, True, False])
    assert threshold_for_accuracy(confidence, right, 1.0) == 0.8
    assert threshold_for_accuracy(confidence, right, 0.75) == 0.6
    assert threshold_for_accuracy(confidence, right, 0.6) == 0.5
    assert threshold_for_accuracy(confidence, ~right, 0.9) == math.inf
    # Equal confidences stand or fall together.
    assert threshold_for_accuracy(torch.tensor([0.9, 0.9]), torch.tensor([True, False]), 1.0) == math.inf


def _exits() -> tuple[EarlyExit, Tensor, Tensor]:
    return copy.deepcopy(_trained())


@cache
def _trained() -> tuple[EarlyExit, Tensor, Tensor]:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(600, 8, generator=generator)
    labels = (x[:, 0] + 0.3 * x[:, 1] * x[:, 2] > 0).long()
    stages = [nn.Sequential(nn.Linear(8, 16), nn.ReLU()), nn.Sequential(nn.Linear(16, 16), nn.ReLU())]
    model = EarlyExit(stages, [nn.Linear(16, 2), nn.Linear(16, 2)])
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(40):
        optimiser.zero_grad()
        sum(nn.functional.cross_entropy(y, labels[:300]) for y in model(x[:300])).backward()  # type: ignore[union-attr]
        optimiser.step()
    return model, x[300:], labels[300:]


def test_sure_rows_leave_and_the_others_get_the_full_network() -> None:
    model, x, labels = _exits()
    model.eval()
    full = model.all_logits(x)
    before = model(x)
    assert isinstance(before, ExitResult)
    assert (before.exits == 1).all()
    report = model.calibrate([(x[:150], labels[:150]), (x[150:], labels[150:])], accuracy=0.97)
    found = model(x)
    assert isinstance(found, ExitResult)
    left = found.exits == 0
    assert 0.2 < float(left.float().mean()) < 1.0
    assert report.taken[0] == pytest.approx(float(left.double().mean()))
    assert float((found.logits.argmax(1) == labels)[left].double().mean()) >= 0.97
    for number, temperature in enumerate(report.temperatures):
        rows = found.exits == number
        assert torch.allclose(found.logits[rows], full[number][rows] / temperature, atol=1e-5)
    assert "temperature" in str(report)
    assert report.to_json()["taken"] == list(report.taken)
    again = EarlyExit(list(model.stages), list(model.heads)).eval()
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(x).exits, found.exits)  # type: ignore[union-attr]


def test_rows_that_left_are_not_computed_further() -> None:
    model, x, labels = _exits()
    model.calibrate([(x, labels)], accuracy=0.95)
    model.eval()
    seen: list[int] = []
    model.stages[1].register_forward_hook(lambda _module, given, _made: seen.append(len(given[0])))
    found = model(x)
    assert isinstance(found, ExitResult)
    assert seen == [int((found.exits == 1).sum())]
    assert seen[0] < len(x)


def test_a_conditional_block_computes_its_share_only() -> None:
    torch.manual_seed(0)
    seen: list[int] = []
    inner = nn.Linear(6, 6)
    inner.register_forward_hook(lambda _module, given, _made: seen.append(len(given[0])))
    layer = ConditionalBlock(inner, 6, capacity=0.25)
    x = torch.randn(2, 8, 6, requires_grad=True)
    y = layer(x)
    assert seen == [4]
    scores = layer.gate(x).squeeze(-1)
    for sample in range(2):
        best = scores[sample].topk(2).indices.tolist()
        for row in range(8):
            expected = x[sample, row]
            if row in best:
                expected = expected + torch.sigmoid(scores[sample, row]) * inner(expected)
            assert torch.allclose(y[sample, row], expected, atol=1e-6)
    y.sum().backward()
    assert layer.gate.weight.grad is not None
    assert layer.gate.weight.grad.abs().sum() > 0
    assert layer(torch.randn(8, 6)).shape == (8, 6)


def test_experts_equal_a_loop_over_rows() -> None:
    torch.manual_seed(0)
    layer = MixtureOfExperts(6, 10, experts=5, k=2).double()
    x = torch.randn(3, 7, 6, dtype=torch.float64)
    y = layer(x)
    rows = x.reshape(-1, 6)
    expected = torch.zeros_like(rows)
    counts = [0] * 5
    for at, row in enumerate(rows):
        scores = layer.router.weight @ row
        best = scores.topk(2).indices
        for expert, gate in zip(best.tolist(), scores[best].softmax(0), strict=True):
            counts[expert] += 1
            hidden = torch.relu(layer.expand[expert] @ row + layer.expand_bias[expert])
            expected[at] = expected[at] + gate * (
                layer.contract[expert] @ hidden + layer.contract_bias[expert]
            )
    assert torch.allclose(y.reshape(-1, 6), expected)
    assert layer.load is not None
    assert layer.load.tolist() == counts
    weight = torch.randn_like(expected)
    parameters = list(layer.parameters())
    for a, b in zip(
        torch.autograd.grad((y.reshape(-1, 6) * weight).sum(), parameters),
        torch.autograd.grad((expected * weight).sum(), parameters),
        strict=True,
    ):
        assert torch.allclose(a, b)


def test_balance_is_one_when_even_and_trains_towards_it() -> None:
    torch.manual_seed(0)
    layer = MixtureOfExperts(4, 8, experts=4, k=1)
    with torch.no_grad():
        layer.router.weight[0] += 2.0
    x = torch.randn(256, 4) + 1.0
    layer(x)
    assert layer.balance is not None
    before = layer.balance.item()
    optimiser = torch.optim.Adam(layer.router.parameters(), lr=0.05)
    for _ in range(60):
        optimiser.zero_grad()
        layer(x)
        layer.balance.backward()
        optimiser.step()
    assert before > 2.0
    assert layer.balance.item() < 1.3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MixtureOfExperts(4, 8, experts=4, k=0), "k must be 1 to 4 experts, got 0"),
        (lambda: MixtureOfExperts(4, 8, experts=4, k=5), "got 5"),
        (lambda: MixtureOfExperts(4, 0, experts=4), "sizes must be"),
        (lambda: MixtureOfExperts(4, 8, experts=4)(torch.ones(0, 4)), "empty batch"),
        (lambda: MixtureOfExperts(4, 8, experts=4)(torch.ones(2, 3)), "must have 4 features"),
        (lambda: ConditionalBlock(nn.Identity(), 4, capacity=0.0), "capacity"),
        (lambda: ConditionalBlock(nn.Identity(), 4)(torch.ones(4)), "must be"),
        (lambda: EarlyExit([nn.Identity()], []), "as many heads"),
        (lambda: EarlyExit([nn.Identity()], [nn.Identity()])(torch.ones(0, 2)), "empty batch"),
        (lambda: EarlyExit([nn.Identity()], [nn.Identity()]).calibrate([], accuracy=0.9), "no batches"),
        (lambda: fit_temperature(torch.full((2, 2), math.nan), torch.zeros(2).long()), "NaN"),
        (lambda: fit_temperature(torch.ones(2, 2), torch.zeros(3).long()), "labels"),
        (lambda: threshold_for_accuracy(torch.ones(2), torch.ones(2) > 0, 0.0), "accuracy must be"),
        (lambda: calibration_error(torch.ones(2), torch.ones(2) > 0, bins=0), "bins"),
    ],
)
def test_bad_arguments(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def test_the_router_of_a_single_expert_learns_from_the_task() -> None:
    torch.manual_seed(0)
    layer = MixtureOfExperts(4, 8, experts=3, k=1)
    x = torch.randn(5, 4)
    y = layer(x)
    probability = layer.router(x).softmax(1)
    chosen = probability.argmax(1)
    hidden = torch.relu(torch.einsum("nhf,nf->nh", layer.expand[chosen], x) + layer.expand_bias[chosen])
    expected = torch.einsum("nfh,nh->nf", layer.contract[chosen], hidden) + layer.contract_bias[chosen]
    assert torch.allclose(y, expected * probability.amax(1, keepdim=True), atol=1e-6)
    y.square().sum().backward()
    assert layer.router.weight.grad is not None
    assert layer.router.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("name", ["experts", "conditional", "predicted by row", "predicted by batch"])
def test_rows_with_nan_stay_nan_and_others_as_they_are(name: str) -> None:
    """A choice among NaN scores must not reach beyond the choices."""
    torch.manual_seed(0)
    layer = {
        "experts": lambda: MixtureOfExperts(8, 16, experts=4),
        "conditional": lambda: ConditionalBlock(nn.Linear(8, 8), 8, capacity=0.5),
        "predicted by row": lambda: PredictedFeedForward(8, 64, 8, block_size=8, keep=3, share="row"),
        "predicted by batch": lambda: PredictedFeedForward(8, 64, 8, block_size=8, keep=3),
    }[name]()
    x = torch.randn(4, 8)
    x[1, 2] = torch.nan
    found = layer(x).isnan()
    assert found[1].any()
    assert not found[[0, 2, 3]].any()
