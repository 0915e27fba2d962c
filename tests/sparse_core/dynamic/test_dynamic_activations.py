"""Top-k activations: masks, gradients, and what is refused."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_core.dynamic.ranking import best_by_row, best_entries, true_positions
from sparse_core.dynamic.top_k import TopKActivation, top_k_mask


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
    ],
)
def test_bad_arguments(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def test_types_are_refused() -> None:
    with pytest.raises(TypeError, match="k must be a whole number of entries, channels or blocks"):
        TopKActivation(0.25)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="floating point"):
        top_k_mask(torch.ones(2, 3, dtype=torch.int64), 1)
