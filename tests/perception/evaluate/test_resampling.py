"""Measures on samples of frames: the same as on tables in which the frames stand so often."""

from __future__ import annotations

import math

import numpy as np
import pytest
from random_boxes import random_tables

from perception.errors import DataError
from perception.evaluate.box_table import BoxTable
from perception.evaluate.boxes.evaluation import evaluate_boxes, judge_boxes
from perception.evaluate.boxes.result import METRICS
from perception.evaluate.comparison import bootstrap, draws
from perception.evaluate.nuscenes.evaluation import evaluate_nuscenes
from perception.evaluate.nuscenes.resampling import NuScenesSampler
from perception.evaluate.resampling import RankingSampler

FRAMES = 6
NAMES = tuple(str(number) for number in range(FRAMES))


def repeated(table: BoxTable, copies: np.ndarray) -> BoxTable:
    """The frames of a table so often."""
    rows = np.repeat(np.arange(FRAMES), copies)
    return BoxTable.joined([table.rows(table.frame == row) for row in rows])


def ranking_sampler(labels: BoxTable, found: BoxTable) -> RankingSampler:
    judged = judge_boxes(
        labels, found, sorted(set(labels.label.tolist())), rules={}, neighbours={}, min_points=0
    )
    rankings = {
        (name, metric.upper()): part.rankings[metric] for name, part in judged.items() for metric in METRICS
    }
    return RankingSampler(NAMES, rankings, main="3D")


@pytest.mark.parametrize("seed", range(3))
def test_nuscenes_samples(seed: int) -> None:
    labels, found = random_tables(seed, FRAMES)
    sampler = NuScenesSampler(NAMES, labels, found)
    copies = draws(FRAMES, 3, seed)
    for sample, numbers in zip(copies, sampler.values(copies), strict=True):
        # Copies of a frame change which of equal scores comes first, and so nothing here: scores differ.
        result = evaluate_nuscenes(repeated(labels, sample), repeated(found, sample))
        for measure, value in zip(sampler.measures, numbers, strict=True):
            if measure.name in ("mAP", "NDS"):
                whole = result.mean_ap if measure.name == "mAP" else result.nds
                assert value == pytest.approx(100 * whole)
            elif measure.name == "AP" and not measure.part:
                judged = result.classes[measure.label]
                assert value == pytest.approx(100 * judged.ap if judged.labels else math.nan, nan_ok=True)


@pytest.mark.parametrize("seed", range(3))
def test_box_samples(seed: int) -> None:
    labels, found = random_tables(seed, FRAMES, noise_m=0.2)
    sampler = ranking_sampler(labels, found)
    copies = np.concatenate([np.ones((1, FRAMES), np.int64), draws(FRAMES, 3, seed)])
    parts = 0
    for sample, numbers in zip(copies, sampler.values(copies), strict=True):
        # The rule follows the size of labels, so the classes of a sample are judged by the rules of all.
        rules = {name: part.rule for name, part in evaluate_boxes(labels, found).classes.items()}
        result = evaluate_boxes(
            repeated(labels, sample), repeated(found, sample), classes=rules, rules=rules
        ).classes
        for measure, value in zip(sampler.measures, numbers, strict=True):
            judged = result[measure.label]
            if not measure.part:
                expected = judged.ap[measure.name.split()[1].lower()]  # type: ignore[index]
            else:
                by = {part.name: part for part in (*judged.by_range, *judged.by_points)}[measure.part]
                expected = by.ap if measure.name == "AP 3D" else by.recall
                parts += 1
            assert value == pytest.approx(expected, nan_ok=True), measure
    assert parts > 50


def test_draws() -> None:
    drawn = draws(50, 200, 3)
    assert (drawn.sum(axis=1) == 50).all()
    np.testing.assert_array_equal(drawn, draws(50, 200, 3))
    assert (drawn != draws(50, 200, 4)).any()
    # Each frame once on average, and absent in 1 of e samples.
    assert abs((drawn == 0).mean() - (1 - 1 / 50) ** 50) < 0.02
    assert draws(0, 3, 0).shape == (3, 0)


def test_a_better_run_is_told_from_chance() -> None:
    labels, good = random_tables(7, 20, noise_m=0.05)
    _, also = random_tables(7, 20, noise_m=0.05)
    _, bad = random_tables(7, 20, noise_m=3.0)
    names = tuple(str(number) for number in range(20))

    def sampler(found: BoxTable) -> NuScenesSampler:
        return NuScenesSampler(names, labels, found)

    same = bootstrap(sampler(good), sampler(also), samples=30)
    assert same.rows[0].difference is not None
    assert tuple(same.rows[0].difference) == (0, 0, 0)
    assert same.rows[0].may_be_chance is True
    worse = bootstrap(sampler(bad), sampler(good), samples=30, seed=1)
    row = worse.rows[0]
    assert row.difference is not None
    assert row.difference.high < 0
    assert row.may_be_chance is False
    assert row.value.low <= row.value.value <= row.value.high
    assert worse.to_dict() == bootstrap(sampler(bad), sampler(good), samples=30, seed=1).to_dict()


def test_what_cannot_be_compared() -> None:
    labels, found = random_tables(1, FRAMES)
    one = ranking_sampler(labels, found)
    other = NuScenesSampler(tuple("abcdef"), labels, found)
    with pytest.raises(DataError, match="different frames"):
        bootstrap(one, other)
    with pytest.raises(ValueError, match="at least 2"):
        bootstrap(one, samples=1)
    alone = bootstrap(one, samples=20)
    assert alone.rows[0].difference is None
    assert alone.rows[0].may_be_chance is None


def test_one_frame_and_none() -> None:
    labels, found = random_tables(3, 1)
    alone = bootstrap(NuScenesSampler(("0",), labels, found), samples=5)
    assert alone.rows[0].value.low == alone.rows[0].value.value == alone.rows[0].value.high
    nothing = bootstrap(NuScenesSampler((), BoxTable.empty(), BoxTable.empty()), samples=5)
    assert nothing.rows[0].value.value == 0
