"""Shares of connections against numbers worked out by hand from the formulas of google-research/rigl."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_core.dynamic.rigl.budgets import layer_densities
from sparse_core.dynamic.rigl.grid import plan_grid
from sparse_core.dynamic.rigl.schedule import cosine_fraction

LENET = {"1": (300, 784), "2": (100, 300), "3": (10, 100)}


def test_erdos_renyi_of_lenet_300_100() -> None:
    # in + out = 1084, 400, 110 and weights 235200, 30000, 1000. With all three: 26620 / 1594 = 16.7 times
    # 110 / 1000 is over 1, so the last layer is dense. The others: 0.1 * 265200 - 0.9 * 1000 = 25620
    # connections over 1484 = 17.26415.
    found = layer_densities(LENET, 0.9, budget="erdos-renyi")
    assert found["3"] == 1.0
    assert math.isclose(found["1"], 25620 / 1484 * 1084 / 235200)
    assert math.isclose(found["1"], 0.0795678, abs_tol=1e-6)
    assert math.isclose(found["2"], 0.2301887, abs_tol=1e-6)


def test_erdos_renyi_with_the_kernel() -> None:
    shapes = {"small": (64, 32, 3, 3), "large": (128, 128, 3, 3)}
    # Sums of the dimensions 102 and 262, weights 18432 and 147456; 16588.8 connections over 364.
    found = layer_densities(shapes, 0.9)
    assert math.isclose(found["small"], 16588.8 / 364 * 102 / 18432)
    assert math.isclose(found["large"], 16588.8 / 364 * 262 / 147456)
    # Without the kernel in + out = 96 and 256, and the raw share of a layer is that over in * out:
    # weights * raw = 9 * 96 and 9 * 256.
    plain = layer_densities(shapes, 0.9, budget="erdos-renyi")
    assert math.isclose(plain["small"], 16588.8 / (9 * 352) * 96 / (64 * 32))


def test_uniform_keeps_named_layers_dense() -> None:
    found = layer_densities(LENET, 0.8, budget="uniform", dense=["1"])
    assert found == pytest.approx({"1": 1.0, "2": 0.2, "3": 0.2})


@given(
    st.lists(st.tuples(st.integers(2, 200), st.integers(2, 200)), min_size=1, max_size=6),
    st.floats(0.0, 0.98),
    st.sampled_from(["erdos-renyi", "erdos-renyi-kernel"]),
)
@settings(max_examples=80)
def test_the_whole_has_the_wanted_sparsity(
    sizes: list[tuple[int, int]], sparsity: float, budget: str
) -> None:
    shapes = {str(at): size for at, size in enumerate(sizes)}
    found = layer_densities(shapes, sparsity, budget=budget)  # type: ignore[arg-type]
    total = sum(math.prod(size) for size in sizes)
    stored = sum(found[name] * math.prod(shape) for name, shape in shapes.items())
    assert math.isclose(stored, (1 - sparsity) * total, rel_tol=1e-9)
    assert all(0 < density <= 1 for density in found.values())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layer_densities(LENET, 1.0), "below 1"),
        (lambda: layer_densities(LENET, 0.5, budget="best"), "budget must be one of"),  # type: ignore[arg-type]
        (lambda: layer_densities(LENET, 0.5, dense=["4"]), r"no such layers to keep dense: \['4'\]"),
        (lambda: layer_densities(LENET, 0.9, dense=["1"]), "alone have more weights than sparsity 0.9"),
        (lambda: layer_densities({"a": (3,)}, 0.9), "a: shape must be"),
        (lambda: plan_grid(4, 4, density=0.0), "density"),
        (lambda: plan_grid(0, 4, density=0.5), "at least one row"),
        (lambda: plan_grid(4, 4, density=0.5, structure="x"), "structure must be one of"),  # type: ignore[arg-type]
        (lambda: plan_grid(4, 6, density=0.5, structure="block", block_size=4), "do not divide the 4x6"),
        (lambda: plan_grid(4, 4, density=0.5, structure="block", block_size=1), "more than one weight"),
    ],
)
def test_bad_arguments(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def test_counts_of_connections() -> None:
    # size - floor(sparsity * size), as in google-research/rigl: 7 of 64 at 0.9 (57.6 zeros, 57 of them).
    assert plan_grid(8, 8, density=1 - 0.9).count == 7
    assert plan_grid(10, 10, density=1 - 0.9).count == 10
    assert plan_grid(300, 784, density=1 - 0.9).count == 23520
    assert plan_grid(8, 20, density=1 - 0.9, structure="fan-in").count == 16
    grid = plan_grid(64, 160, density=1 - 0.9, structure="block", block_size=(32, 16))
    assert (grid.shape, grid.per_row, grid.count, grid.values_shape) == ((2, 10), 1, 2, (2, 32, 16))


def test_cosine_schedule_by_hand() -> None:
    expected = {0: 0.3, 25: 0.15 * (1 + math.sqrt(0.5)), 50: 0.15, 75: 0.15 * (1 - math.sqrt(0.5)), 100: 0.0}
    for step, fraction in expected.items():
        assert math.isclose(cosine_fraction(step, initial=0.3, stop_step=100), fraction, abs_tol=1e-12)
    assert cosine_fraction(101, initial=0.3, stop_step=100) == 0.0
