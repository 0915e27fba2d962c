"""Densities over steps and layers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparse_core.attention.pruning.schedule import DensitySchedule, LinearDensity


@given(
    layers=st.integers(1, 6),
    target=st.floats(0.01, 1.0),
    begin=st.integers(0, 50),
    length=st.integers(1, 200),
    order=st.sampled_from(["shallow", "deep"]),
    overlap=st.floats(0.0, 1.0),
)
def test_from_dense_to_the_target_without_rising(
    layers: int, target: float, begin: int, length: int, order: str, overlap: float
) -> None:
    schedule = DensitySchedule(layers, target, begin, begin + length, order, overlap)  # type: ignore[arg-type]
    assert schedule.densities_at(begin) == (1.0,) * layers
    assert schedule.densities_at(begin + length) == (target,) * layers
    assert schedule.densities_at(begin + length + 1000) == (target,) * layers
    for layer in range(layers):
        densities = [schedule.density_at(step, layer) for step in range(begin + length + 1)]
        assert all(later <= earlier for earlier, later in itertools.pairwise(densities))


def test_the_ramp_is_that_of_zhu_and_gupta() -> None:
    schedule = DensitySchedule(1, 0.2, 100, 200)
    assert schedule.density_at(150, 0) == pytest.approx(0.2 + 0.8 * 0.5**3)
    assert schedule.density_at(125, 0) == pytest.approx(0.2 + 0.8 * 0.75**3)


def test_shallow_layers_go_first_or_last() -> None:
    shallow = DensitySchedule(4, 0.25, 0, 100)
    deep = DensitySchedule(4, 0.25, 0, 100, "deep")
    for step in range(1, 100):
        densities = shallow.densities_at(step)
        assert list(densities) == sorted(densities)
        assert deep.densities_at(step) == pytest.approx(densities[::-1])
    assert shallow.densities_at(40)[0] == 0.25
    assert shallow.densities_at(40)[3] == 1.0


def test_turns() -> None:
    apart = DensitySchedule(4, 0.5, 100, 500, overlap=0.0)
    assert [apart.turn(layer) for layer in range(4)] == [(100, 200), (200, 300), (300, 400), (400, 500)]
    together = DensitySchedule(4, 0.5, 100, 500, overlap=1.0)
    assert {together.turn(layer) for layer in range(4)} == {(100, 500)}
    half = DensitySchedule(3, 0.5, 0, 200)
    assert [half.turn(layer) for layer in range(3)] == [(0, 100), (50, 150), (100, 200)]


def test_targets_of_each_layer() -> None:
    assert DensitySchedule(3, LinearDensity(0.5, 0.1), 0, 9).targets == pytest.approx((0.5, 0.3, 0.1))
    assert DensitySchedule(1, LinearDensity(0.5, 0.1), 0, 9).targets == (0.5,)
    assert DensitySchedule(2, [0.5, 0.25], 0, 9).densities_at(9) == (0.5, 0.25)


def test_table() -> None:
    lines = str(DensitySchedule(2, [0.5, 0.25], 0, 30)).splitlines()
    assert lines[0].split() == ["layer", "from", "step", "to", "step", "density"]
    assert lines[2].split() == ["0", "0.0", "20.0", "50.0%"]
    assert lines[3].split() == ["1", "10.0", "30.0", "25.0%"]
    assert len({len(line) for line in lines}) == 1


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="layers must be at least 1"):
        DensitySchedule(0, 0.5, 0, 9)
    with pytest.raises(ValueError, match="0 <= begin < end"):
        DensitySchedule(1, 0.5, 9, 9)
    with pytest.raises(ValueError, match="order must be one of shallow, deep"):
        DensitySchedule(1, 0.5, 0, 9, "middle")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="overlap must be from 0 to 1"):
        DensitySchedule(1, 0.5, 0, 9, overlap=1.1)
    with pytest.raises(ValueError, match="a density for each of 2 layers"):
        DensitySchedule(2, [0.5], 0, 9)
    with pytest.raises(ValueError, match="target of layer 1 must be above 0"):
        DensitySchedule(2, LinearDensity(0.5, 0.0), 0, 9)
    with pytest.raises(IndexError, match="from 0 to 1, got 2"):
        DensitySchedule(2, 0.5, 0, 9).density_at(1, 2)
