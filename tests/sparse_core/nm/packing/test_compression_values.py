"""Quantisation and codebooks: bounds, brute force, and exact cases."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_core.nm.packing.codebook import fit_codebook, lookup
from sparse_core.nm.packing.quantisation import quantise_groups


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group_size", [None, 1, 5, 16, 100])
@pytest.mark.parametrize("half", [False, True])
def test_rounding_stays_within_half_a_scale(bits: int, group_size: int | None, half: bool) -> None:
    values = torch.randn((7, 37), generator=torch.Generator().manual_seed(0))
    values[2] = 0
    values[3, ::2] = 0
    found = quantise_groups(values, bits, group_size=group_size, half_scales=half)
    restored = found.dequantised()
    steps = found.scale.float().repeat_interleave(found.group_size, dim=1)[:, :37]
    # A scale rounded down to float16 cuts the largest value off by a little more.
    slack = 1 + 2 ** (bits - 1) * 2**-10 * half
    assert bool(((restored - values).abs() <= 0.5 * steps * slack * (1 + 1e-6)).all())
    assert bool((restored[values == 0] == 0).all())
    assert int(found.values.abs().max()) <= 2 ** (bits - 1) - 1
    assert found.scale.dtype == (torch.float16 if half else torch.float32)


def test_clipping_never_has_a_larger_error() -> None:
    values = torch.randn((50, 64), generator=torch.Generator().manual_seed(1)) ** 3
    plain = quantise_groups(values, 4, group_size=32)
    clipped = quantise_groups(values, 4, group_size=32, clip=True)
    errors = [
        (found.dequantised() - values).square().reshape(-1, 32).sum(dim=1) for found in (plain, clipped)
    ]
    assert bool((errors[1] <= errors[0] * (1 + 1e-6)).all())
    assert float(errors[1].sum()) < 0.97 * float(errors[0].sum())


def test_bad_values_are_refused() -> None:
    with pytest.raises(ValueError, match="NaN or infinite"):
        quantise_groups(torch.tensor([[1.0, float("nan")]]))
    with pytest.raises(ValueError, match="group_size must be at least 1"):
        quantise_groups(torch.ones(1, 4), group_size=0)
    with pytest.raises(ValueError, match="use half_scales=False"):
        quantise_groups(torch.full((1, 4), 1e8), half_scales=True)


def best_error(values: list[float], entries: int) -> float:
    """Least squared error of k-means on a line: clusters are runs of the sorted values."""
    ordered = sorted(values)
    best = float("inf")
    for cuts in itertools.combinations(range(1, len(ordered)), min(entries, len(ordered)) - 1):
        error = 0.0
        for start, stop in itertools.pairwise((0, *cuts, len(ordered))):
            run = ordered[start:stop]
            mean = sum(run) / len(run)
            error += sum((value - mean) ** 2 for value in run)
        best = min(best, error)
    return best


@settings(max_examples=60)
@given(
    values=st.lists(st.floats(-4, 4, width=16).filter(lambda v: v != 0), min_size=4, max_size=9),
    entries=st.integers(1, 4),
)
def test_codes_are_nearest_and_no_better_than_the_best(values: list[float], entries: int) -> None:
    tensor = torch.tensor(values)
    book = fit_codebook(tensor, entries)
    restored = lookup(book.centroids, book.codes, zero=book.zero)
    distances = (tensor[:, None] - book.centroids).abs()
    assert torch.allclose((tensor - restored).abs(), distances.min(dim=1).values)
    assert len(book.centroids) <= entries
    least = best_error(values, entries)
    assert book.error >= least - 1e-5
    if len(set(values)) <= entries:
        assert torch.equal(restored, tensor)


def test_k_means_finds_separate_clusters() -> None:
    centres = torch.tensor([-3.0, -1.0, 0.5, 2.0])
    noise = 0.01 * torch.randn((4, 100), generator=torch.Generator().manual_seed(0))
    values = (centres[:, None] + noise).flatten()
    book = fit_codebook(values, 4)
    assert torch.allclose(book.centroids, (centres[:, None] + noise).mean(dim=1), atol=1e-6)
    assert torch.equal(book.codes.reshape(4, 100), torch.arange(4, dtype=torch.uint8)[:, None].expand(4, 100))


def test_zeros_stay_zero_and_are_not_trained() -> None:
    values = torch.tensor([0.0, 1.0, 1.1, -2.0, 0.0])
    book = fit_codebook(values, 3)
    assert book.zero
    centroids = book.centroids.clone().requires_grad_()
    restored = lookup(centroids, book.codes, zero=True)
    assert torch.allclose(restored, torch.tensor([0.0, 1.05, 1.05, -2.0, 0.0]))
    restored.backward(torch.tensor([10.0, 1.0, 2.0, 4.0, 20.0]))
    assert centroids.grad is not None
    assert centroids.grad.tolist() == [4.0, 3.0]


def test_importance_draws_centroids() -> None:
    values = torch.tensor([1.0, 2.0, 9.0, 10.0])
    weights = torch.tensor([3.0, 1.0, 1.0, 1.0])
    assert fit_codebook(values, 2, importance=weights).centroids.tolist() == [1.25, 9.5]


@pytest.mark.parametrize(
    ("entries", "message"),
    [(0, "1 to 256 entries, got 0"), (257, "got 257"), (5, "larger than the 4 values")],
)
def test_impossible_codebooks_are_refused(entries: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_codebook(torch.tensor([1.0, 2.0, 3.0, 4.0]), entries)


def test_other_bad_codebooks_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot hold zero and other"):
        fit_codebook(torch.tensor([0.0, 1.0]), 1)
    with pytest.raises(ValueError, match="NaN"):
        fit_codebook(torch.tensor([float("nan"), 1.0]), 1)
    with pytest.raises(TypeError, match="floating point"):
        fit_codebook(torch.tensor([1, 2]), 1)
    with pytest.raises(ValueError, match="importance"):
        fit_codebook(torch.tensor([1.0, 2.0]), 1, importance=torch.tensor([1.0, -1.0]))
    assert fit_codebook(torch.zeros(4), 1).centroids.shape == (0,)
