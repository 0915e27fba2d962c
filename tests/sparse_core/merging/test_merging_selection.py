"""Thresholds keep exactly as many as asked, the largest, and the first among equals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_core.merging.arithmetic import thresholds as selection
from sparse_core.merging.arithmetic.pieces import Delta
from sparse_core.merging.arithmetic.sums import Share, _parts, _SignElection
from sparse_core.merging.arithmetic.thresholds import kept_count, magnitude_threshold
from sparse_core.merging.methods import METHODS
from sparse_core.merging.rules import Rule
from sparse_core.merging.task_vector import TaskVector


def kept_by_sort(values: np.ndarray, keep: int) -> np.ndarray:
    mask = np.zeros(len(values), dtype=bool)
    mask[np.argsort(-np.abs(values), kind="stable")[:keep]] = True
    return mask


def check(values: np.ndarray, keep: int) -> None:
    found = magnitude_threshold(Delta(torch.from_numpy(values)), keep).apply(
        torch.from_numpy(values.copy()), 0
    )
    expected = np.where(kept_by_sort(values, keep), values, 0)
    assert (found.numpy() == expected).all()


@settings(max_examples=60)
@given(st.lists(st.sampled_from([0.0, -0.0, 0.5, -0.5, 1.0, -2.0, 1e-40]), max_size=40), st.data())
def test_ties_in_small_tensors(numbers: list[float], data: st.DataObject) -> None:
    check(np.array(numbers, dtype=np.float32), data.draw(st.integers(0, len(numbers))))


DISTRIBUTIONS = {
    "normal": lambda g, n: g.normal(size=n),
    "few values": lambda g, n: g.integers(-3, 4, n).astype(float),
    "mostly zero": lambda g, n: np.where(g.random(n) < 0.9, 0, g.normal(size=n)),
    "all equal": lambda g, n: np.full(n, -1.5),
    "heavy tails": lambda g, n: g.standard_cauchy(n) ** 3,
    # The sample takes every third number and sees only the small ones, or only the large ones.
    "misleading, small": lambda g, n: np.where(np.arange(n) % 3 == 0, 1e-3, 1.0) * g.random(n),
    "misleading, large": lambda g, n: np.where(np.arange(n) % 3 == 0, 1.0, 1e-3) * g.random(n),
}


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, np.float32) for name in DISTRIBUTIONS), ("normal", np.float64)]
)
def test_large_tensors(name: str, dtype: type) -> None:
    count = 3 * selection._SAMPLE + 7
    values = DISTRIBUTIONS[name](np.random.default_rng(0), count).astype(dtype)
    for keep in (0, 1, 100, count // 10, count // 2, count - 1, count):
        check(values, keep)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_selection_of_other_devices_finds_the_same(name: str, dtype: type) -> None:
    values = DISTRIBUTIONS[name](np.random.default_rng(0), 5003).astype(dtype)
    delta = Delta(torch.from_numpy(values))
    for keep in (1, 100, 2501, 2502, 5002):
        several = [delta, Delta(-delta.values.flip(0)), Delta(delta.values, delta.values / 2)]
        expected = [selection._sorted_threshold(one, keep) for one in several]
        assert selection._device_thresholds(several, keep) == expected
        assert selection.magnitude_thresholds(several, [keep] * 3) == expected
    values[17] = np.nan
    with pytest.raises(ValueError, match="NaN or infinity"):
        selection._device_thresholds([delta], 100)


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (0.5, -0.3, 2.0)])
def test_signs_elected_for_all_rows_at_once_are_the_same(weights: tuple[float, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    deltas = [Delta(torch.randn(1000, generator=generator).round(decimals=1)) for _ in weights]
    rule = Rule(METHODS["ties"], scale=0.7)
    cpu, found = torch.device("cpu"), []
    for device in (cpu, torch.device("cuda")):
        shares = [Share(d, w, 0.5) for d, w in zip(deltas, weights, strict=True)]
        parts = _parts(shares, rule, "", torch.Size([1000]), cpu)
        electing = _SignElection(parts, rule, 1000, torch.float32, cpu)
        # Only the branch is another one; the tensors stay where they are.
        electing.device = device
        found.append(electing.piece(0, 600).clone())
    assert torch.equal(*found)


def test_pieces_are_cut_at_the_last_tie() -> None:
    values = torch.tensor([1.0, 2.0, -1.0, 1.0, 0.5])
    found = magnitude_threshold(Delta(values), 3)
    assert found == (1.0, 3, 3)
    pieces = [found.apply(values[start : start + 2].clone(), start) for start in (0, 2, 4)]
    assert torch.cat(pieces).tolist() == [1.0, 2.0, -1.0, 0.0, 0.0]


def test_counts_of_a_density() -> None:
    assert [kept_count(density, 100) for density in (0.29, 0.1, 0.999, 1.0, 1e-6)] == [29, 10, 99, 100, 1]
    assert kept_count(0.5, 0) == 0


@pytest.mark.parametrize("density", [0.1, 0.25, 0.5])
def test_trim_keeps_the_exact_count(density: float) -> None:
    torch.manual_seed(0)
    vector = TaskVector({"a": torch.randn(400, 500), "b": torch.randn(40, 10).bfloat16()})
    found = vector.trim(density)
    assert {name: int(torch.count_nonzero(value)) for name, value in found.deltas.items()} == {
        "a": int(density * 200_000),
        "b": int(density * 400),
    }


@pytest.mark.parametrize("count", [50, 3 * selection._SAMPLE])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_named(count: int, bad: float) -> None:
    values = torch.randn(count)
    values[count // 2 + 1] = bad
    with pytest.raises(ValueError, match="model x holds NaN or infinity"):
        magnitude_threshold(Delta(values, label="model x"), 10)
