"""Levels on a GPU: the same choice of pillars, and graphs that stay as they are at a switch."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from perception import Detector
from perception.budget import BudgetedDetector, Level, important_points
from perception.config import PillarConfig
from sparse_core.dynamic import BudgetWarning

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def scan(count: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.uniform([-2, -42, -4, 0], [72, 42, 2, 1], (count, 4)).astype(np.float32)


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.99])
def test_selection_on_a_gpu_is_that_of_the_cpu(share: float) -> None:
    config = PillarConfig()
    for seed in range(5):
        points = torch.from_numpy(scan(3000, seed))
        chosen = important_points(points.cuda(), config, share)
        assert chosen.shape == points.shape
        inside = chosen[chosen[:, 0] < 1e6].cpu()
        assert torch.equal(inside, important_points(points, config, share))


def test_a_cloud_on_the_device_gives_the_same_boxes() -> None:
    whole = Detector.from_pretrained("pointpillars-kitti", device="cuda").with_score_threshold(0.0)
    budgeted = BudgetedDetector(whole, 1.0, levels=(Level("half", 0.5),))
    points = scan(12_000)
    there, here = (budgeted.at("half", cloud) for cloud in (torch.from_numpy(points).cuda(), points))
    assert len(here) > 0
    assert there.labels == here.labels
    np.testing.assert_array_equal(there.boxes, here.boxes)


def test_levels_on_a_gpu_are_graphs_that_stay() -> None:
    whole = Detector.from_pretrained("pointpillars-kitti", device="cuda")
    assert whole.fast
    random = np.random.default_rng(0)
    points = random.uniform([0, -30, -1.8, 0], [60, 30, 0.5, 1], (12_000, 4)).astype(np.float32)
    budgeted = BudgetedDetector(whole, 1.0)
    budgeted.measure(points)
    graphs = {name: dict(made._graphs._graphs) for name, made in budgeted._detectors.items() if made._graphs}
    assert len(graphs) == len(budgeted.levels)
    held = torch.cuda.memory_reserved()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)
        for budget_s in (1.0, 1e-9, 1.0, 1e-9):
            budgeted.set_budget(budget_s)
            for _ in range(8):
                budgeted(points)
    # Which level was fast enough depends on the machine's load; each runs once in any case.
    for made in budgeted._detectors.values():
        made(points)
    assert torch.cuda.memory_reserved() == held
    for name, made in budgeted._detectors.items():
        assert made._graphs is not None
        assert made._graphs._graphs == graphs[name]


def test_a_budget_of_energy_on_a_gpu() -> None:
    whole = Detector.from_pretrained("pointpillars-kitti", device="cuda")
    random = np.random.default_rng(0)
    points = random.uniform([0, -30, -1.8, 0], [60, 30, 0.5, 1], (12_000, 4)).astype(np.float32)
    levels = (Level("all"), Level("once", refinements=1))
    budgeted = BudgetedDetector(whole, budget_j=1e3, levels=levels)
    measured = budgeted.measure(points, repeats=1)
    # Some hundred watts for less than a millisecond or a few.
    assert all(0.005 < joules < 10 for joules in measured.values())
    for _ in range(20):
        budgeted(points)
    assert budgeted.ran == "all"
    budgeted.set_budget(1e-6)
    with pytest.warns(BudgetWarning, match="the most frugal"):
        budgeted(points)
    assert budgeted.ran == min(measured, key=measured.__getitem__)
