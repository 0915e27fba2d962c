"""KITTI AP on samples of frames: what the protocol itself gives on frames that stand there so often."""

from __future__ import annotations

import numpy as np
import pytest
from random_kitti import random_frames

from perception.evaluate.comparison import draws
from perception.evaluate.kitti import evaluate_kitti
from perception.evaluate.kitti.resampling import KittiSampler


@pytest.mark.parametrize(("seed", "neat"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_sample_has_the_real_ap_of_its_frames(seed: int, neat: bool) -> None:
    labels, results = (list(side.values()) for side in random_frames(seed, 12, neat=neat))
    sampler = KittiSampler(labels, results, classes=["Car", "Pedestrian", "Cyclist"])
    copies = draws(12, 4, seed)
    values = sampler.values(np.concatenate([np.ones((1, 12), np.int64), copies]))
    assert len(sampler.measures) > 20
    for sample, numbers in zip([np.ones(12, np.int64), *copies], values, strict=True):
        rows = np.repeat(np.arange(12), sample)
        expected = evaluate_kitti([labels[row] for row in rows], [results[row] for row in rows])
        for measure, value in zip(sampler.measures, numbers, strict=True):
            if not measure.part:
                _, metric, difficulty = measure.name.split()
                ap = expected.ap(measure.label, metric.lower(), difficulty)  # type: ignore[arg-type]
                if expected.label_counts[measure.label, difficulty]:  # type: ignore[index]
                    np.testing.assert_array_equal(value, ap)
                else:
                    assert np.isnan(value)
