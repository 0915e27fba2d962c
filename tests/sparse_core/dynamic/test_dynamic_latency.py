"""LatencyController on made-up clocks."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_core.dynamic.latency import BudgetWarning, LatencyController, measure_levels

SECONDS = {"dense": 0.040, "2:4": 0.030, "block 75 %": 0.020, "block 90 %": 0.010}


def _drive(controller: LatencyController, scene: float, frames: int) -> list[str]:
    taken = []
    for _ in range(frames):
        level = controller.choose()
        controller.observe(level, SECONDS[level] * scene)
        taken.append(level)
    return taken


def test_the_best_level_within_the_budget() -> None:
    for budget, level in ((0.050, "dense"), (0.035, "2:4"), (0.02, "block 75 %"), (0.010, "block 90 %")):
        assert LatencyController(SECONDS, budget).choose() == level


def test_a_harder_scene_goes_down_at_once_and_up_after_patience() -> None:
    controller = LatencyController(SECONDS, 0.045, patience=4, smoothing=1.0)
    assert _drive(controller, 1.0, 3) == ["dense"] * 3
    assert _drive(controller, 2.0, 3) == ["dense", "block 75 %", "block 75 %"]
    # Easy again: one frame to notice, then four in a row.
    assert _drive(controller, 1.0, 6) == ["block 75 %"] * 4 + ["dense"] * 2
    assert controller.switches == 2


def test_hysteresis_stops_flapping_at_the_edge() -> None:
    steady = LatencyController(SECONDS, 0.041, hysteresis=0.1, patience=1, smoothing=1.0)
    eager = LatencyController(SECONDS, 0.041, hysteresis=0.0, patience=1, smoothing=1.0)
    for frame in range(40):
        for controller in (steady, eager):
            level = controller.choose()
            controller.observe(level, SECONDS[level] * (1.0 if frame % 2 else 1.05))
    assert steady.switches == 1
    assert eager.switches > 10


def test_a_budget_that_nothing_meets_takes_the_fastest_and_says_so_once() -> None:
    controller = LatencyController(SECONDS, 0.005)
    with pytest.warns(BudgetWarning, match=r"no level meets 5 ms: the fastest, 'block 90 %'.* 10 ms"):
        assert controller.choose() == "block 90 %"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(20):
            assert controller.choose() == "block 90 %"
            controller.observe("block 90 %", 0.010)
    controller.set_budget(0.05)
    assert "dense" in _drive(controller, 1.0, 10)
    controller.set_budget(0.001)
    with pytest.warns(BudgetWarning):
        controller.choose()


@given(
    st.lists(st.floats(0.2, 4.0), min_size=1, max_size=60),
    st.floats(0.005, 0.1),
    st.floats(0.0, 0.5),
    st.integers(1, 6),
)
@settings(max_examples=60)
def test_never_over_the_expected_budget_where_a_level_meets_it(
    scenes: list[float], budget: float, hysteresis: float, patience: int
) -> None:
    controller = LatencyController(SECONDS, budget, hysteresis=hysteresis, patience=patience)
    for scene in scenes:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BudgetWarning)
            level = controller.choose()
        reachable = min(controller.expected(name) for name in SECONDS) <= budget
        if reachable:
            assert controller.expected(level) <= budget
        else:
            assert level == "block 90 %"
        controller.observe(level, SECONDS[level] * scene)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LatencyController({}, 0.1), "at least one level"),
        (lambda: LatencyController({"a": 0.0}, 0.1), "seconds of level 'a' must be positive"),
        (lambda: LatencyController(SECONDS, 0.0), "budget_s must be positive"),
        (lambda: LatencyController(SECONDS, float("nan")), "budget_s"),
        (lambda: LatencyController(SECONDS, 0.1, hysteresis=1.0), "hysteresis"),
        (lambda: LatencyController(SECONDS, 0.1).observe("x", 0.1), "no level 'x': there are"),
        (lambda: LatencyController(SECONDS, 0.1).observe("dense", -1.0), "seconds must be positive"),
        (lambda: measure_levels({}), "needs levels"),
    ],
)
def test_bad_arguments(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def test_levels_without_names_are_refused() -> None:
    with pytest.raises(TypeError, match="expected a dictionary of level names and seconds, got list"):
        LatencyController([0.1, 0.2], 0.1)  # type: ignore[arg-type]


def test_measured_levels_are_in_order() -> None:
    now_s = 0.0

    def spend(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    levels = {"slow": lambda: spend(0.02), "fast": lambda: spend(0.002)}
    found = measure_levels(levels, repeats=3, warm_up=1, clock=lambda: now_s)
    assert list(found) == ["slow", "fast"]
    assert found == pytest.approx({"slow": 0.02, "fast": 0.002})
