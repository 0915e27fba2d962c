"""Top-k and threshold activations: masks, gradients, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from sparse_core.dynamic.activations.thresholds import (
    AbsoluteThreshold,
    LearnedThreshold,
    LocalThreshold,
    PercentileThreshold,
    ThresholdActivation,
)
from sparse_core.dynamic.activations.top_k import TopKActivation, top_k_mask
from sparse_core.dynamic.ranking import best_by_row, best_entries, true_positions


@given(st.integers(1, 4), st.integers(1, 9), st.data())
@settings(max_examples=60)
def test_best_entries_are_those_of_a_stable_sort(rows: int, width: int, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(-3, 3), min_size=rows * width, max_size=rows * width))
    scores = torch.tensor(numbers, dtype=torch.float32).reshape(rows, width)
    count = data.draw(st.integers(0, width))
    found = best_entries(scores, count)
    for row, mask in zip(scores.tolist(), found, strict=True):
        expected = sorted(sorted(range(width), key=lambda at: -row[at])[:count])
        assert mask.nonzero().flatten().tolist() == expected
    assert torch.equal(true_positions(found, count), found.nonzero()[:, 1].reshape(rows, count))
    most = max(count, 1)
    assert torch.equal(best_by_row(scores, torch.full((rows, 1), count), most), found)
    counts = torch.randint(0, most + 1, (rows, 1), generator=torch.Generator().manual_seed(count))
    apart = [best_entries(line[None], int(wanted)) for line, wanted in zip(scores, counts, strict=True)]
    assert torch.equal(best_by_row(scores, counts, most), torch.cat(apart))


def test_rows_keep_their_largest_and_the_first_of_equals() -> None:
    x = torch.tensor([[1.0, -3.0, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0]])
    assert top_k_mask(x, 2).tolist() == [[False, True, False, True], [True, True, False, False]]
    assert top_k_mask(x, 1, by="value").tolist()[0] == [False, False, False, True]


def test_channels_and_blocks_go_by_their_energy() -> None:
    x = torch.zeros(1, 3, 2, 2)
    x[0, 0, 0, 0] = 3.0  # 9
    x[0, 1] = 1.6  # 4 * 2.56
    mask = top_k_mask(x, 1, granularity="channel")
    assert mask.shape == x.shape
    assert mask[0, :, 0, 0].tolist() == [False, True, False]
    row = torch.tensor([[3.0, 0.0, 2.5, 2.5, 0.0, 1.0]])
    assert top_k_mask(row, 1, granularity="block", block_size=2).tolist() == [
        [False, False, True, True, False, False]
    ]


def test_nan_stays_visible() -> None:
    x = torch.tensor([[5.0, float("nan"), 1.0]])
    assert TopKActivation(1)(x).isnan().tolist() == [[False, True, False]]
    for rule in (AbsoluteThreshold(9.0), PercentileThreshold(60), LocalThreshold(5.0)):
        assert ThresholdActivation(rule)(x)[0, 1].isnan()


def test_gradients_through_kept_positions_or_straight_through() -> None:
    x = torch.tensor([[1.0, -3.0, 2.0]], requires_grad=True)
    weights = torch.tensor([[1.0, 10.0, 100.0]])
    (TopKActivation(1)(x) * weights).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0.0, 10.0, 0.0]]
    x.grad = None
    (TopKActivation(1, gradient="straight-through")(x) * weights).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[1.0, 10.0, 100.0]]
    double = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(TopKActivation(3), (double,))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TopKActivation(0), "k must be at least 1, got 0"),
        (lambda: top_k_mask(torch.ones(2, 3), 0), r"k must be 1 to 3 \(entries"),
        (lambda: top_k_mask(torch.ones(2, 3), 4), "got 4"),
        (lambda: top_k_mask(torch.ones(2, 3, 4), 4, granularity="channel"), "k must be 1 to 3 .channels"),
        (lambda: top_k_mask(torch.ones(2, 6), 4, granularity="block", block_size=2), "1 to 3 .blocks"),
        (lambda: top_k_mask(torch.ones(2, 6), 1, granularity="block", block_size=4), "does not divide"),
        (lambda: top_k_mask(torch.ones(0, 6), 1), "empty batch"),
        (lambda: top_k_mask(torch.ones(6), 1, granularity="channel"), "too few dimensions"),
        (lambda: TopKActivation(1, gradient="no"), "gradient must be one of"),  # type: ignore[arg-type]
        (lambda: ThresholdActivation(AbsoluteThreshold(1.0))(torch.ones(0, 2)), "empty batch"),
        (lambda: AbsoluteThreshold(-1.0), "not negative"),
        (lambda: PercentileThreshold(100), "below 100"),
        (lambda: LocalThreshold(window=4), "odd"),
        (lambda: LearnedThreshold(1.0), "above 0 and below 1"),
        (lambda: LearnedThreshold(0.5, channels=4)(torch.ones(2, 3)), "3 channels, the layer 4"),
    ],
)
def test_bad_arguments(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def test_whole_numbers_are_refused() -> None:
    with pytest.raises(TypeError, match="floating point"):
        top_k_mask(torch.ones(2, 3, dtype=torch.int64), 1)
    with pytest.raises(TypeError, match="rule must be"):
        ThresholdActivation(0.5)  # type: ignore[arg-type]


def test_percentile_drops_exactly_its_share() -> None:
    x = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))
    for percentile, dropped in ((0, 0), (10, 4), (90, 36), (99.9, 39)):
        mask = PercentileThreshold(percentile).mask(x)
        assert (~mask).sum(dim=1).tolist() == [dropped] * 5
        assert (mask | (x.abs() <= x.abs().masked_fill(~mask, math.inf).amin(1, keepdim=True))).all()
    assert int((~PercentileThreshold(90, per_row=False).mask(x)).sum()) == 180


def test_local_threshold_by_hand() -> None:
    x = torch.tensor([[1.0, 1.0, 5.0, 1.0, 1.0]])
    assert LocalThreshold(1.0).mask(x).tolist() == [[False, False, True, False, False]]
    # The window of the second entry is 1, 1, 5: mean 7/3; that of the first is 1, 1: mean 1.
    assert LocalThreshold(0.0, window=3).mask(x).tolist() == [[False, False, True, False, False]]
    assert LocalThreshold(-0.5, window=3).mask(torch.tensor([[1.0, 2.0, 3.0]])).tolist() == [
        [False, True, True]
    ]


def test_learned_threshold_forward_is_hard_and_its_gradient_that_of_the_sigmoid() -> None:
    layer = LearnedThreshold(0.5, initial=1.0, temperature=0.5)
    x = torch.tensor([[0.5, -2.0]], requires_grad=True)
    y = layer(x)
    assert y.tolist() == [[0.0, -2.0]]
    assert layer.sparsity is not None
    assert float(layer.sparsity) == 0.5
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0.0, 1.0]]
    # d/dt sum x * sigmoid((|x| - t) / T) = -sum x * s (1 - s) / T, times the softplus' slope.
    s = [1 / (1 + math.exp(-(abs(v) - 1.0) / 0.5)) for v in (0.5, -2.0)]
    slope = 1 - math.exp(-1.0)
    expected = -sum(v * p * (1 - p) / 0.5 for v, p in zip((0.5, -2.0), s, strict=True)) * slope
    assert layer.raw_threshold.grad is not None
    assert math.isclose(float(layer.raw_threshold.grad), expected, rel_tol=1e-5)


def test_learned_threshold_reaches_its_target() -> None:
    torch.manual_seed(0)
    layer = LearnedThreshold(0.8, channels=16, temperature=0.2)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(200):
        layer(torch.randn(64, 16))
        penalty = layer.penalty
        assert isinstance(penalty, Tensor)
        optimiser.zero_grad()
        penalty.backward()
        optimiser.step()
    assert layer.sparsity is not None
    assert 0.75 < float(layer.sparsity) < 0.85


def test_state_of_a_learned_threshold_is_saved() -> None:
    first, second = LearnedThreshold(0.5, initial=0.7), LearnedThreshold(0.5)
    second.load_state_dict(first.state_dict())
    assert torch.allclose(second.threshold, torch.tensor([0.7]))
    assert isinstance(first, nn.Module)
