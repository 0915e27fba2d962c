"""Costs and choice of pairs, by hand and where problems are too large to be solved exactly."""

from __future__ import annotations

import numpy as np
import pytest

from perception.track import association
from perception.track.association import Pairs, assign, distance_cost


@pytest.mark.parametrize("largest", [256, 1])
def test_dear_pairs_are_not_made(largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(association, "_LARGEST", largest)
    pairs = Pairs(np.array([0, 0, 1, 2]), np.array([0, 1, 0, 1]))
    found = assign(pairs, np.array([0.1, 0.9, 0.5, 1.2]), 3, 2, alone=1.0)
    assert [column.tolist() for column in found] == [[0], [0]]
    found = assign(pairs, np.array([0.1, 0.9, 0.5, 1.2]), 3, 2)
    assert [column.tolist() for column in found] == [[0, 2], [0, 1]]


def test_the_cost_is_distance_heading_and_size() -> None:
    box, yaw = np.array([3.0, 4.0, 0.0, 0.4, 0.2, 0.8, 0.5]), np.eye(7)[6]
    turned = box + np.pi / 2 * yaw
    opposite = box + np.pi * yaw
    longer = box * [1, 1, 1, 2, 1, 1, 1]
    away = box - [3, 4, 0, 0, 0, 0, 0]
    others = np.stack([box, turned, opposite, longer, away])
    gates, turn, size = np.full(5, 2.0), np.full(5, 0.7), np.full(5, 0.3)
    cost = distance_cost(np.stack([box] * 5), others, gates, turn, size)
    np.testing.assert_allclose(cost, [0.0, 0.7, 0.0, 0.3, 2.5], atol=1e-12)
