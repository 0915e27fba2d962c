"""The benchmark of knowing objects again: what the PointNet is given; all sides are asked the same."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch

from perception.train.identity import IdentityConfig
from perception.train.identity.observations import Observations


@pytest.fixture
def identity() -> Any:
    return importlib.import_module("benchmarks.tracking.identity")


def test_points_in_the_frame_of_a_box(identity: Any) -> None:
    box = np.array([10, 5, 0, 4, 2, 1.5, np.pi / 2], np.float32)
    points = np.array([[10, 6.5, 0.2, 0.7], [9, 5, 0, 0.1], [10, 9, 0, 0.5], [20, 5, 0, 0.5]], np.float32)
    rows = identity.points_in(box, points)
    np.testing.assert_allclose(rows[0], [4, 2, 1.5, 2])
    np.testing.assert_allclose(rows[1:3], [[1.5, 0, 0.2, 0.7], [0, 1, 0, 0.1]], atol=1e-5)
    assert not rows[3:].any()
    # Half a turn of scan and box together changes nothing, and no point at all is fine.
    turned, far = (
        box * np.array([-1, -1, 1, 1, 1, 1, -1], np.float32),
        points * np.array([-1, -1, 1, 1], np.float32),
    )
    np.testing.assert_allclose(identity.points_in(turned, far), rows, atol=1e-5)
    assert identity.points_in(box, points[:0])[0, 3] == 0


def test_the_point_net_does_not_see_what_is_not_there(identity: Any) -> None:
    torch.manual_seed(0)
    network = identity.PointNet().eval()
    inputs = torch.rand(2, 6, 4) + 0.5
    inputs[:, 0, 3] = torch.tensor([3.0, 0.0])
    changed = inputs.clone()
    changed[:, 4:] = 9.0
    vectors = network(inputs)
    assert torch.equal(vectors, network(changed))
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(2))


def test_all_sides_are_asked_the_same(identity: Any) -> None:
    random = np.random.default_rng(0)
    owner = np.repeat(np.arange(8), 4)
    boxes = np.ones((32, 7), np.float32) + 0.3 * owner[:, None].astype(np.float32)
    sights = Observations(
        random.random((32, 256)).astype(np.float32), boxes, np.zeros(32, np.int64),
        np.array([f"a {number}" for number in owner]), np.full(32, "a"), np.tile(np.arange(4.0), 8),
        np.arange(32) % 4 == 3,
    )  # fmt: skip
    points = random.random((32, 1 + 5, 4)).astype(np.float32) + 0.5
    config = IdentityConfig(steps=2, objects=4, sights=2)
    found = identity._judged(config, [(sights, points)], [(sights, points)])
    assert (found["learned"], found["asked"]) == (
        {"sights": 32, "objects": 8},
        {"sights": 24, "objects": 8},
    )
    assert {side["questions"] for side in found["sides"].values()} == {24}
    # Sizes are all that these objects differ in.
    assert found["sides"]["sizes alone"]["mean_ap"] == 1.0
    assert found["sides"]["the detector's vectors"]["mean_ap"] < 0.9
