"""Scores against their formulas written out."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from sparse_core.nm.pruning.scores import GradientScore, magnitude, wanda


class Tripled(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return 3 * weight


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_scores_are_float32_or_better(dtype: torch.dtype) -> None:
    weight = random(3, 8).to(dtype).requires_grad_()
    expected = torch.float64 if dtype == torch.float64 else torch.float32
    for score in (magnitude(weight), wanda(weight, torch.ones(8))):
        assert score.dtype == expected
        assert not score.requires_grad
        assert torch.equal(score, weight.detach().to(expected).abs())


def test_wanda_weighs_each_input() -> None:
    weight, norm = random(3, 8), random(8, seed=1).abs().double()
    expected = [[abs(float(weight[r, c])) * float(norm[c]) for c in range(8)] for r in range(3)]
    torch.testing.assert_close(wanda(weight, norm), torch.tensor(expected))


def test_wanda_of_convolutions_and_groups() -> None:
    kernel, norm = random(6, 2, 3, 3), random(3, 18, seed=1).abs()
    score = wanda(kernel, norm)
    for row in range(6):
        expected = kernel[row].abs() * norm[row // 2].reshape(2, 3, 3)
        torch.testing.assert_close(score[row], expected)
    torch.testing.assert_close(wanda(kernel, norm[0]), kernel.abs() * norm[0].reshape(2, 3, 3))


def test_wanda_refuses_norms_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"input_norm of fc must have shape \(8,\).* got \(7,\)"):
        wanda(random(3, 8), torch.ones(7), name="fc")
    with pytest.raises(ValueError, match="groups dividing 3"):
        wanda(random(3, 8), torch.ones(2, 8))
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="finite and at least 0"):
            wanda(random(3, 8), torch.full((8,), bad))


def step(model: nn.Module, seed: int) -> None:
    model.zero_grad()
    model(random(5, 8, seed=seed)).square().sum().backward()


def two_layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))


def test_gradient_score_is_the_corrected_moving_average() -> None:
    model = two_layers()
    score = GradientScore(model, momentum=0.7)
    changes = []
    for seed in range(4):
        step(model, seed)
        score.update()
        changes.append((model[0].weight * model[0].weight.grad).abs().detach())
    # The bias-corrected average is the mean with weights momentum^age.
    shares = torch.tensor([0.7**age for age in (3, 2, 1, 0)])
    expected = sum(share * change for share, change in zip(shares / shares.sum(), changes, strict=True))
    torch.testing.assert_close(score.score("0"), expected)


def test_gradient_score_without_momentum_is_the_last_update() -> None:
    model = two_layers()
    score = GradientScore(model, "^2$", momentum=0.0)
    for seed in range(2):
        step(model, seed)
        score.update()
    torch.testing.assert_close(score.score("2"), (model[2].weight * model[2].weight.grad).abs().detach())
    with pytest.raises(ValueError, match="'0' is not watched"):
        score.score("0")


def test_layers_without_gradient_keep_their_own_count() -> None:
    model = two_layers()
    score = GradientScore(model, momentum=0.9)
    step(model, 0)
    model[2].weight.grad = None
    score.update()
    with pytest.raises(ValueError, match=r"'2' never had a gradient; scores exist for \['0'\]"):
        score.score("2")
    step(model, 1)
    score.update()
    torch.testing.assert_close(score.score("2"), (model[2].weight * model[2].weight.grad).abs().detach())


def test_parametrised_weights_are_scored_by_what_is_trained() -> None:
    model = two_layers()
    parametrize.register_parametrization(model[0], "weight", Tripled())
    score = GradientScore(model)
    step(model, 0)
    score.update()
    original = model[0].parametrizations.weight.original
    torch.testing.assert_close(score.score("0"), (original * original.grad).abs().detach())


def test_gradient_score_resumes() -> None:
    model = two_layers()
    through, first = GradientScore(model), GradientScore(model)
    for seed in range(2):
        step(model, seed)
        through.update()
        first.update()
    resumed = GradientScore(model, momentum=0.1)
    resumed.load_state_dict(copy.deepcopy(first.state_dict()))
    step(model, 2)
    through.update()
    resumed.update()
    assert torch.equal(through.score("0"), resumed.score("0"))
    assert resumed.momentum == through.momentum
    assert not torch.equal(first.score("0"), resumed.score("0"))


def test_gradient_score_refuses() -> None:
    model = two_layers()
    with pytest.raises(ValueError, match="momentum"):
        GradientScore(model, momentum=1.0)
    score = GradientScore(model)
    with pytest.raises(ValueError, match="no layer has a gradient"):
        score.update()
    step(model, 0)
    score.update()
    with pytest.raises(ValueError, match="not watched here"):
        GradientScore(model, "^2$").load_state_dict(score.state_dict())
    other = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    with pytest.raises(ValueError, match=r"'0' has shape \(8, 8\), its weight \(8, 4\)"):
        GradientScore(other).load_state_dict(score.state_dict())
