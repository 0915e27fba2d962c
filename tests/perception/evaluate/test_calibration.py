"""Calibration: what a known distortion of scores is found to be, and what is too little to say."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from perception.evaluate.calibration import (
    ScoreMap,
    calibration_error,
    fit_map,
    measure_reliability,
    reliability_bins,
)
from perception.evaluate.ranking import Ranking
from perception.evaluate.reports.calibration import calibration_table, plot_reliability


def ranking(score: np.ndarray, right: np.ndarray) -> Ranking:
    """Boxes of 20 frames."""
    order = np.argsort(-score)
    count = len(score)
    none = np.zeros(0, np.int64)
    return Ranking(
        score[order], np.arange(count) % 20, right[order], np.zeros(count, np.int64), score, none, none, none
    )


def distorted(count: int, scale: float, bias: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores whose map to the true chance is known."""
    random = np.random.default_rng(3)
    score = random.random(count)
    return score, random.random(count) < ScoreMap(scale, bias)(score)


@pytest.mark.parametrize(("scale", "bias"), [(1.0, 0.0), (2.0, -1.0), (0.5, 0.7)])
def test_a_known_distortion_is_found(scale: float, bias: float) -> None:
    score, right = distorted(40_000, scale, bias)
    fitted = fit_map(score, right)
    assert fitted is not None
    assert tuple(fitted) == pytest.approx((scale, bias), abs=0.05)
    assert calibration_error(fitted(score), right) < 0.01
    assert (np.argsort(fitted(score), kind="stable") == np.argsort(score, kind="stable")).all()


def test_a_weak_prior_keeps_the_scores() -> None:
    score, right = distorted(60, 2.0, -1.0)
    fitted = fit_map(score, right)
    assert fitted is not None
    # At the optimum, residuals balance the distance from no change.
    residual, logit = fitted(score) - right, np.log(score / (1 - score))
    assert residual @ logit == pytest.approx(1.0 - fitted.scale, abs=1e-8)
    assert residual.sum() == pytest.approx(-fitted.bias, abs=1e-8)


def test_reliability() -> None:
    score, right = distorted(2000, 2.0, -1.5)
    found = measure_reliability({"Car": ranking(score, right)}, 20)["Car"]
    assert found.error > 0.1
    assert found.error_fitted < 0.06
    wrong = ((score >= 0.3) & ~right).sum()
    assert found.false_per_frame == wrong / 20
    assert measure_reliability({"Car": ranking(score, right)}, 1)["Car"].false_per_frame == wrong
    assert found.false_fitted < found.false_per_frame
    assert found.bins[:, 0].sum() == 2000
    json.dumps(found.to_dict(), allow_nan=False)


def test_consecutive_frames_do_not_calibrate_each_other() -> None:
    """In the first four of 20 frames sure boxes are often wrong; no other frame shows that."""
    random = np.random.default_rng(0)
    frame = np.repeat(np.arange(20), 100)
    first = frame < 4
    score = np.where(first, random.uniform(0.7, 0.9, 2000), random.uniform(0.05, 0.7, 2000))
    right = random.random(2000) < np.where(first, 0.3, score)
    given = ranking(score, right)._replace(frame=frame[np.argsort(-score)])
    mixed = given._replace(frame=random.permutation(given.frame))
    apart, alike = (measure_reliability({"Car": each}, 20)["Car"].error_fitted for each in (given, mixed))
    assert apart > alike + 0.05


def test_bins_by_hand() -> None:
    score, right = np.array([0.05, 0.35, 0.39, 1.0]), np.array([False, True, False, True])
    bins = reliability_bins(score, right)
    assert bins[3].tolist() == pytest.approx([2, 0.37, 0.5])
    assert bins[9].tolist() == [1, 1, 1]
    assert math.isnan(bins[5, 1])
    assert calibration_error(score, right) == pytest.approx((0.05 + 2 * 0.13 + 0) / 4)


def test_too_little_to_say(tmp_path: Path) -> None:
    empty = np.zeros(0)
    few = ranking(np.array([0.9, 0.1]), np.array([True, False]))
    nothing = ranking(empty, empty.astype(bool))
    found = measure_reliability({"few": few, "none": nothing}, 1)
    assert found["few"].fitted is None
    assert math.isnan(found["none"].error)
    assert "–" in str(calibration_table(found, 1))
    assert plot_reliability(found, tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    # Wrong boxes score higher: no rising map helps.
    score = np.linspace(0, 1, 200)
    assert fit_map(score, score < 0.5) is None
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        measure_reliability({"Car": ranking(np.array([3.0]), np.array([True]))}, 1)
