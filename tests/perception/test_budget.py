"""Levels and the detector that chooses among them: what is left out, what is shared, what is said."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from perception import Detections, Detector, PointCloud
from perception.budget import BudgetedDetector, Level, default_levels, important_points, thinned
from perception.budget import detector as budget_module
from perception.budget.selection import TYPICAL_TOP_M
from perception.checkpoints.weights import load_weights
from perception.config import DetectorConfig, PillarConfig
from perception.model.layers import SparseBlock
from perception.model.network import Network
from perception.model.pillars import make_pillars
from perception.registry import make_network
from perception.train.data.frames import TrainingFrame
from sparse_core.dynamic import BudgetWarning, EnergyMeter
from sparse_core.errors import EnergyUnavailableError

Street = Callable[[int], TrainingFrame]

pytestmark = pytest.mark.usefixtures("one_thread")

LEVELS = (Level("all"), Level("half", pillar_share=0.5), Level("once", refinements=1, proposals=3))


@pytest.fixture
def detector(tiny_network: Network) -> Detector:
    torch.nn.init.zeros_(tiny_network.head.heat.bias)
    return Detector(tiny_network).with_score_threshold(0.0)


class Clock:
    """Time that passes as a test says: each reading of the clock is a step later."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(budget_module.time, "perf_counter", lambda: self.now)


def paced(detector: BudgetedDetector, clock: Clock, seconds: dict[str, float]) -> BudgetedDetector:
    """The detector, whose levels take as long as told, on the clock that it looks at."""
    run = detector._detect

    def detect(level: Level, cloud: Any) -> Detections:
        clock.now += seconds[level.name]
        return run(level, cloud)

    detector._detect = detect  # type: ignore[method-assign]
    return detector


def same(first: Detections, second: Detections) -> bool:
    pairs = ((first.boxes, second.boxes), (first.scores, second.scores))
    return all(np.array_equal(*pair) for pair in pairs) and first.labels == second.labels


def rows_of(points: torch.Tensor) -> list[tuple[float, ...]]:
    return sorted(tuple(row) for row in points.tolist())


@st.composite
def clouds(draw: st.DrawFn) -> torch.Tensor:
    count = draw(st.integers(1, 200))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return torch.from_numpy(random.uniform([-2, -9, -4, 0], [18, 9, 2, 1], (count, 4)).astype(np.float32))


@given(clouds(), st.floats(0.01, 1.0))
@settings(max_examples=60)
def test_the_most_important_pillars_stay_whole(points: torch.Tensor, share: float) -> None:
    config = PillarConfig(range_m=(0, -8, -3, 16, 8, 1), pillar_size_m=1.0)
    kept = important_points(points, config, share)
    before, after = (make_pillars([part], config) for part in (points, kept))
    tops = torch.full((len(before.table),), -torch.inf).scatter_reduce(
        0, before.rows, before.points[:, 2], "amax"
    )
    off = (tops - TYPICAL_TOP_M).abs()
    stay = torch.isin(before.table.keys, after.table.keys)
    # Enough, and no more than a step of 2 cm beyond: every one that stays is as good as every one that goes.
    assert int(stay.sum()) >= share * len(off) - 1e-6
    if stay.any() and not stay.all():
        assert float(off[stay].max()) <= float(off[~stay].min()) + 1e-5
    if share < 1 and stay.any():
        worst = float(off[stay].max())
        assert int((off < worst - 0.0201).sum()) < share * len(off) + 1e-6
    wanted = before.points[stay[before.rows]]
    assert rows_of(after.points) == rows_of(wanted)


@given(clouds(), st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_order_of_points_is_irrelevant(points: torch.Tensor, random: Any) -> None:
    config = PillarConfig(range_m=(0, -8, -3, 16, 8, 1), pillar_size_m=1.0)
    order = list(range(len(points)))
    random.shuffle(order)
    assert rows_of(important_points(points[order], config, 0.4)) == rows_of(
        important_points(points, config, 0.4)
    )


def test_selection_of_little(tiny_config: DetectorConfig) -> None:
    config = tiny_config.pillars
    empty = torch.zeros((0, 4))
    assert important_points(empty, config, 0.5).shape == (0, 4)
    outside = torch.full((5, 4), 1e6)
    assert important_points(outside, config, 0.5).shape == (0, 4)
    one = torch.tensor([[1.0, 1.0, -1.7, 0.0]])
    assert torch.equal(important_points(one, config, 0.01), one)
    for share in (0.0, -1.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="share must be in"):
            important_points(one, config, share)


def test_points_that_are_not_finite_are_still_reported(detector: Detector, street: Street) -> None:
    points = street(0).points.copy()
    points[0, 0], points[1, 2], points[2, 3], points[3, 1] = np.nan, np.inf, np.nan, -np.inf
    found = BudgetedDetector(detector, 1.0, levels=LEVELS).at("half", points)
    assert found.warnings[0] == "4 points with NaN or infinite values left out"


def test_road_goes_before_objects(street: Street, tiny_config: DetectorConfig) -> None:
    points = torch.from_numpy(street(0).points)
    pillars = make_pillars([points], tiny_config.pillars)
    objects = (pillars.points[:, 2] > -1.6).long()
    share = int(torch.zeros(len(pillars.table)).index_add(0, pillars.rows, objects.float()).count_nonzero())
    kept = important_points(points, tiny_config.pillars, share / len(pillars.table))
    # As many pillars as there are with an object: hardly any point above the road is lost.
    assert int((kept[:, 2] > -1.6).sum()) > 0.99 * int(objects.sum())
    assert int((kept[:, 2] <= -1.6).sum()) < 0.5 * int((1 - objects).sum())


# Thinning


def test_a_whole_level_is_the_network(tiny_network: Network, street: Street) -> None:
    network = tiny_network.fold()
    twin = thinned(
        network, Level("all", backbone_blocks=(9, 9, 9), neck_blocks=9, refinements=9, proposals=99)
    )
    assert twin.config == network.config
    assert same(Detector(twin)(street(0).points), Detector(network)(street(0).points))


def test_a_thinner_network_shares_every_weight(tiny_network: Network) -> None:
    level = Level(
        "thin", reach_m=(8, 4), backbone_blocks=(0, 1, 0), neck_blocks=0, refinements=1, proposals=4
    )
    network = tiny_network.fold()
    known = {id(part) for part in network.parameters()}
    before = {name: part.clone() for name, part in network.state_dict().items()}
    thin = thinned(network, level)
    assert {id(part) for part in thin.parameters()} < known
    assert sum(isinstance(part, SparseBlock) for part in thin.backbone.modules()) == 1
    assert len(thin.neck.blocks) == 0
    assert len(thin.refinements) == thin.config.refine.iterations == 1
    assert thin.config.refine.proposals == 4
    assert thin.config.backbone.blocks == (0, 1, 0)
    assert thin.config.pillars.range_m == (0, -4, -3, 8, 4, 1)
    # The whole network is as it was.
    assert sum(isinstance(part, SparseBlock) for part in network.backbone.modules()) == 3
    assert len(network.refinements) == 2
    assert network.encoder.config == network.config.pillars != thin.encoder.config
    after = network.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(part, after[name]) for name, part in before.items())


def test_the_dense_twin_has_levels_too(tiny_network: Network, street: Street) -> None:
    dense = make_network(
        replace(tiny_network.config, backbone=replace(tiny_network.config.backbone, kind="dense"))
    )
    torch.nn.init.zeros_(dense.head.heat.bias)
    levels = (Level("all"), Level("thin", 0.5, backbone_blocks=(0, 1, 1), neck_blocks=0))
    budgeted = BudgetedDetector(Detector(dense.eval()).with_score_threshold(0.0), 60.0, levels=levels)
    points = street(0).points
    whole, thin = (budgeted.at(level.name, points) for level in levels)
    assert len(whole) > 0
    assert len(thin) > 0
    assert not same(whole, thin)


def test_without_refinement_the_proposals_are_the_boxes(tiny_network: Network, street: Street) -> None:
    thin = thinned(tiny_network.fold(), Level("none", refinements=0))
    assert not thin.config.refine.enabled
    assert len(Detector(thin).with_score_threshold(0.0)(street(0).points)) > 0


@pytest.mark.parametrize(
    ("reach_m", "expected"),
    [
        ((100.0, 100.0), (0, -8, 16, 8)),
        ((8.0, 8.0), (0, -8, 8, 8)),
        ((8.1, 2.0), (0, -2, 10, 2)),
        ((0.1, 0.1), (0, -2, 2, 2)),
    ],
)
def test_reach_is_rounded_up_to_whole_cells(
    tiny_network: Network, reach_m: tuple[float, float], expected: tuple[float, ...]
) -> None:
    range_m = thinned(tiny_network, Level("near", reach_m=reach_m)).config.pillars.range_m
    assert (*range_m[:2], *range_m[3:5]) == expected
    assert range_m[2::3] == (-3, 1)


def test_reach_is_a_network_of_that_range(tiny_network: Network, street: Street) -> None:
    torch.nn.init.zeros_(tiny_network.head.heat.bias)
    pillars = replace(tiny_network.config.pillars, range_m=(0, -4, -3, 10, 4, 1))
    built = Network(replace(tiny_network.config, pillars=pillars)).eval()
    built.load_state_dict(tiny_network.state_dict())
    thin = thinned(tiny_network.fold(), Level("near", reach_m=(9, 3)))
    points = street(0).points
    found, expected = (Detector(made).with_score_threshold(0.0)(points) for made in (thin, built))
    assert len(expected) > 3
    assert expected.boxes[:, 0].max() < 11
    assert same(found, expected)


def test_bad_levels(tiny_network: Network) -> None:
    for values, field in (
        ({"pillar_share": 0.0}, "pillar_share"),
        ({"pillar_share": 1.1}, "pillar_share"),
        ({"reach_m": (0.0, 5.0)}, "reach_m"),
        ({"backbone_blocks": (1, -1, 1)}, "backbone_blocks"),
        ({"backbone_blocks": ()}, "backbone_blocks"),
        ({"neck_blocks": -1}, "neck_blocks"),
        ({"refinements": -1}, "refinements"),
        ({"proposals": 0}, "proposals"),
    ):
        with pytest.raises(ValueError, match=f"level 'bad': {field} must be"):
            Level("bad", **values)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must not be empty"):
        Level("")
    with pytest.raises(ValueError, match="must have 3 counts"):
        thinned(tiny_network, Level("two", backbone_blocks=(1, 1)))
    far = replace(
        tiny_network.config, pillars=PillarConfig(range_m=(100, 0, -3, 132, 32, 1), pillar_size_m=0.25)
    )
    with pytest.raises(ValueError, match="level 'near': reach_m"):
        thinned(tiny_network, Level("near", reach_m=(50, 50)), far)


@pytest.mark.parametrize("fast", [False, True])
def test_default_levels_suit_the_shipped_weights(fast: bool) -> None:
    network = load_weights("pointpillars-kitti")
    levels = default_levels(fast=fast)
    assert levels[0] == Level("all")
    assert len({level.name for level in levels}) == len(levels) >= 3
    for before, after in itertools.pairwise(levels):
        assert thinned(network, after).config != network.config or after.pillar_share < 1
        assert before.pillar_share >= after.pillar_share


# Choosing


def test_the_budget_decides_the_level(
    detector: Detector, street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    points = street(0).points
    seconds = {"all": 0.04, "half": 0.02, "once": 0.01}
    budgeted = paced(BudgetedDetector(detector, 0.05, levels=LEVELS, patience=2), clock, seconds)
    assert budgeted.controller is None
    assert budgeted.ran is None
    ran = []
    for budget_s in (0.05, 0.03, 0.011, 0.05, 0.05, 0.05, 0.05):
        budgeted.set_budget(budget_s)
        budgeted(points)
        ran.append(budgeted.ran)
        assert budgeted.elapsed_s == pytest.approx(seconds[str(budgeted.ran)])
    assert budgeted.budget_s == 0.05
    # Down at once, up after two frames that had room.
    assert ran == ["all", "half", "once", "once", "all", "all", "all"]
    assert budgeted.seconds == pytest.approx(seconds)
    uses = {use.level.name: use for use in budgeted.uses()}
    assert [use.frames for use in uses.values()] == [4, 1, 2]
    assert uses["once"].mean_s == pytest.approx(0.01)
    assert uses["all"].measured_s == pytest.approx(0.04)


def test_a_harder_scene_is_looked_at_less(
    detector: Detector, street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    seconds = {"all": 0.04, "half": 0.02, "once": 0.01}
    budgeted = paced(BudgetedDetector(detector, 0.05, levels=LEVELS), clock, seconds)
    points = street(0).points
    budgeted(points)
    for name in seconds:
        seconds[name] *= 2
    ran = []
    for _ in range(8):
        budgeted(points)
        ran.append(budgeted.ran)
    assert ran[0] == "all"
    assert ran[2:] == ["half"] * 6


def test_one_hiccup_does_not_decide(
    detector: Detector, street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    seconds = {"all": 0.02, "half": 0.01, "once": 0.005}
    budgeted = paced(BudgetedDetector(detector, 0.05, levels=LEVELS), clock, seconds)
    points = street(0).points
    budgeted(points)
    seconds["all"] = 5.0
    budgeted(points)
    seconds["all"] = 0.02
    budgeted(points)
    assert budgeted.ran == "all"


def test_an_impossible_budget_takes_the_fastest_and_says_so_once(detector: Detector, street: Street) -> None:
    budgeted = BudgetedDetector(detector, 1e-9, levels=LEVELS)
    with pytest.warns(BudgetWarning, match="no level meets") as told:
        list(budgeted.stream(street(0).points for _ in range(4)))
    assert len([one for one in told if one.category is BudgetWarning]) == 1
    fastest = min(budgeted.seconds, key=budgeted.seconds.__getitem__)
    assert budgeted.ran == fastest


def test_results_are_those_of_the_level(detector: Detector, street: Street) -> None:
    points = street(1).points
    cloud = PointCloud(points, timestamp_ns=7, source="here")
    budgeted = BudgetedDetector(detector, 60.0, levels=LEVELS)
    assert same(budgeted(cloud), detector(points))
    assert budgeted.ran == "all"
    chosen = important_points(torch.from_numpy(points), detector.config.pillars, 0.5)
    found = budgeted.at("half", cloud)
    assert same(found, detector(chosen))
    assert (found.timestamp_ns, found.source) == (7, "here")
    assert len(budgeted.at("once", cloud)) <= 3
    assert not same(found, budgeted.at("all", cloud))
    for kind in (points, torch.from_numpy(points), cloud):
        assert same(budgeted.at("half", kind), found)
    with pytest.raises(ValueError, match="unknown level"):
        budgeted.at("none", cloud)


def test_levels_that_differ_in_pillars_only_are_one_detector(detector: Detector) -> None:
    levels = (Level("all"), Level("half", 0.5), Level("fifth", 0.2), Level("once", refinements=1))
    made = BudgetedDetector(detector, 1.0, levels=levels)._detectors
    assert made["all"] is made["half"] is made["fifth"] is detector
    assert made["once"] is not detector


def test_empty_scans_come_first(detector: Detector, street: Street) -> None:
    budgeted = BudgetedDetector(detector, 60.0, levels=LEVELS)
    nothing, outside = np.zeros((0, 4), np.float32), np.full((9, 4), 1e6, np.float32)
    for cloud in (nothing, outside):
        assert len(budgeted(cloud)) == 0
        assert budgeted.controller is None
        assert budgeted.ran == "all"
        with pytest.raises(ValueError, match="point in range"):
            budgeted.measure(cloud)
    budgeted(street(0).points)
    assert budgeted.controller is not None
    assert len(budgeted(nothing)) == 0


def test_stream_and_profile(detector: Detector, street: Street) -> None:
    budgeted = BudgetedDetector(detector, 60.0, levels=LEVELS[1:])

    def scans() -> Iterator[Any]:
        for seed in range(3):
            yield street(seed).points

    found = list(budgeted.stream(scans()))
    assert [len(boxes) > 0 for boxes in found] == [True] * 3
    stages = budgeted.profile(street(0).points, repeats=1)
    assert list(stages)[:2] == ["selection", "pillars"]
    assert all(taken > 0 for taken in stages.values())


def test_bad_arguments(detector: Detector, street: Street) -> None:
    for budget_s in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="budget_s must be positive"):
            BudgetedDetector(detector, budget_s)
    budgeted = BudgetedDetector(detector, 1.0, levels=LEVELS)
    for _ in range(2):
        with pytest.raises(ValueError, match="budget_s must be positive"):
            budgeted.set_budget(0.0)
        assert budgeted.budget_s == 1.0
        budgeted(street(0).points)
    with pytest.raises(ValueError, match="different names"):
        BudgetedDetector(detector, 1.0, levels=(Level("a"), Level("a", 0.5)))
    with pytest.raises(ValueError, match="at least one level"):
        BudgetedDetector(detector, 1.0, levels=())
    with pytest.raises(ValueError, match="hysteresis"):
        BudgetedDetector(detector, 1.0, levels=LEVELS, hysteresis=2.0)
    with pytest.raises(ValueError, match=r"shape \(N, 4\)"):
        budgeted(torch.zeros(3, 6))
    with pytest.raises(ValueError, match=r"shape \(N, 4\)"):
        budgeted(np.zeros((3, 6), np.float32))


# Energy


class Counter:
    """A CPU's counter of energy in a folder as Linux has it; levels use what a test says."""

    def __init__(self, root: Path, joules: dict[str, float]) -> None:
        self.joules, self.file = joules, root / "intel-rapl:0" / "energy_uj"
        self.file.parent.mkdir(parents=True)
        self.file.write_text("999000000")
        self.file.with_name("name").write_text("package-0")
        self.file.with_name("max_energy_range_uj").write_text("1000000000")
        self.meter = EnergyMeter("cpu", root=root)

    def use(self, joules: float) -> None:
        self.file.write_text(str((int(self.file.read_text()) + round(1e6 * joules)) % 10**9))

    def behind(self, detector: BudgetedDetector) -> BudgetedDetector:
        run = detector._detect

        def detect(level: Level, cloud: Any) -> Detections:
            self.use(self.joules[level.name])
            return run(level, cloud)

        detector._detect = detect  # type: ignore[method-assign]
        return detector


def test_a_budget_of_energy_decides_the_level(
    detector: Detector, street: Street, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = Counter(tmp_path, {"all": 4.0, "half": 2.0, "once": 1.0})
    clock = Clock(monkeypatch)
    # Time says the contrary, and does not matter.
    seconds = {"all": 0.01, "half": 0.02, "once": 0.04}
    budgeted = BudgetedDetector(detector, budget_j=5.0, meter=counter.meter, levels=LEVELS, patience=2)
    counter.behind(paced(budgeted, clock, seconds))
    points, ran = street(0).points, []
    for budget_j in (5.0, 3.0, 1.1, 5.0, 5.0, 5.0):
        budgeted.set_budget(budget_j)
        budgeted(points)
        ran.append(budgeted.ran)
        assert budgeted.used_j == pytest.approx(counter.joules[str(budgeted.ran)])
    assert ran == ["all", "half", "once", "once", "all", "all"]
    assert (budgeted.budget_j, budgeted.budget_s) == (5.0, None)
    assert budgeted.joules == pytest.approx(counter.joules)
    assert budgeted.seconds == pytest.approx(seconds)
    uses = {use.level.name: use for use in budgeted.uses()}
    assert uses["once"].mean_j == pytest.approx(1.0)
    assert uses["all"].measured_j == pytest.approx(4.0)
    # A scene that takes twice as much.
    for name in counter.joules:
        counter.joules[name] *= 2
    for _ in range(8):
        budgeted(points)
    assert budgeted.ran == "half"


def test_frames_shorter_than_the_steps_of_a_counter_are_told_together(
    detector: Detector, street: Street, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = Counter(tmp_path, {"all": 0.4, "half": 0.2, "once": 0.1})
    clock = Clock(monkeypatch)
    budgeted = BudgetedDetector(detector, budget_j=0.5, meter=counter.meter, levels=LEVELS[:1])
    counter.behind(paced(budgeted, clock, {"all": 0.006}))
    points = street(0).points
    assert budgeted.measure(points, repeats=1) == pytest.approx({"all": 0.4})
    assert budgeted.controller is not None
    told, observe = [], budgeted.controller.observe
    monkeypatch.setattr(
        budgeted.controller, "observe", lambda name, joules: (told.append(joules), observe(name, joules))
    )
    for joules in (0.4, 0.8, 0.4, 0.0, 0.0, 0.0, 1.6):
        counter.joules["all"] = joules
        budgeted(points)
    # Two frames last as long as steps do; where the counter stands still they wait for more.
    assert told[0] == pytest.approx(0.6)
    assert len(told) == 3
    assert budgeted.uses()[0].mean_j == pytest.approx(3.2 / 7)


def test_budgets_of_energy_that_cannot_be(detector: Detector, street: Street, tmp_path: Path) -> None:
    for budgets in ({}, {"budget_s": 1.0, "budget_j": 1.0}):
        with pytest.raises(ValueError, match="one of budget_s and budget_j"):
            BudgetedDetector(detector, **budgets)
    counter = Counter(tmp_path, {})
    with pytest.raises(ValueError, match="budget_j must be positive"):
        BudgetedDetector(detector, budget_j=0.0, meter=counter.meter)
    still = BudgetedDetector(detector, budget_j=1.0, meter=counter.meter, levels=LEVELS[:1])
    with pytest.raises(EnergyUnavailableError, match=r"package-0 did not advance"):
        still(street(0).points)
