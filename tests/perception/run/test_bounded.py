"""Whole frames whose neck is computed near active cells: the boxes of the dense one, growth, overflow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from perception.config import BackboneConfig, DetectorConfig, HeadConfig, NeckConfig, PillarConfig
from perception.model.network import Network
from perception.registry import graph_steps
from perception.run.fixed import SparseSteps
from perception.run.graph import FrameRunner
from perception.run.results import FrameResult
from perception.run.room import Room
from sparse_core.errors import CapacityWarning

#: 24 x 12 cells of the neck.
CONFIG = DetectorConfig(
    pillars=PillarConfig(range_m=(0.0, -15.36, -3.0, 61.44, 15.36, 1.0), pillar_size_m=0.32, channels=8),
    backbone=BackboneConfig(channels=(8, 8, 16), blocks=(1, 0, 0)),
    neck=NeckConfig(channels=16, blocks=2, out_channels=16),
    head=HeadConfig(channels=16),
)
LISTS = 6


def cloud(points: int, seed: int, *, corner: float = 0.15) -> Tensor:
    """Points in a corner of the range, of the given share along x."""
    generator = torch.Generator().manual_seed(seed)
    low, high = torch.tensor([0.0, -15.3, -2.0, 0.0]), torch.tensor([61.4 * corner, -9.0, 0.5, 1.0])
    return torch.rand((points, 4), generator=generator) * (high - low) + low


@pytest.fixture(scope="module")
def network() -> Network:
    torch.manual_seed(0)
    made = Network(CONFIG)
    with torch.no_grad():
        made.head.heat.bias.fill_(-1.0)
        made.head.heat.weight.mul_(20.0)
        for name, parameter in made.named_parameters():
            # An untrained network gives nothing at empty cells; this one does.
            if "norm" in name and name.endswith("bias"):
                parameter.normal_(std=0.5)
    return made.eval().fold()


@pytest.fixture
def runner(network: Network, monkeypatch: pytest.MonkeyPatch) -> Callable[..., FrameRunner]:
    # Plain torch computes rows without use too.
    monkeypatch.setattr("perception.run.room._LEAST_POINTS", 128)
    monkeypatch.setattr("perception.run.room._LEAST_PILLARS", 256)

    def make(frames: int = 1, *, dense: bool = False) -> FrameRunner:
        monkeypatch.setattr("perception.run.room._DENSE_CELLS", 1 << 20 if dense else 0)
        made = FrameRunner(network, graph_steps(network.config), dtype=torch.float32, impl="reference")
        made.graph_for([cloud(30, 0)] * frames)
        return made

    return make


def assert_same(found: FrameResult, wanted: FrameResult) -> None:
    assert len(found.boxes) == len(wanted.boxes)
    torch.testing.assert_close(found.boxes, wanted.boxes, rtol=0, atol=1e-4)
    torch.testing.assert_close(found.scores, wanted.scores, rtol=0, atol=1e-5)
    assert np.array_equal(found.labels, wanted.labels)


def test_boxes_are_those_of_the_dense_neck_in_any_order(runner: Callable[..., FrameRunner]) -> None:
    near, dense = runner(), runner(dense=True)
    clouds = [cloud(60, 1), cloud(0, 2), cloud(9, 3, corner=0.4), cloud(90, 4)]
    first = [near([one])[0] for one in clouds]
    assert len(near.graph_for(clouds[:1]).room.nearby) == LISTS
    assert dense.graph_for(clouds[:1]).room.nearby == ()
    for one, found in zip(clouds, first, strict=True):
        assert_same(found, dense([one])[0])
    assert len(first[0].boxes) > 3
    # What the frame before left behind does not show.
    for number in (3, 0, 2, 1, 0):
        again = near([clouds[number]])[0]
        assert np.array_equal(again.boxes, first[number].boxes)
        assert np.array_equal(again.scores, first[number].scores)


def test_batches_and_stages(runner: Callable[..., FrameRunner]) -> None:
    near, dense = runner(3), runner(3, dense=True)
    clouds = [cloud(40, 5), cloud(0, 6), cloud(70, 7)]
    found = near(clouds)
    assert len(near.graph_for(clouds).room.nearby) == LISTS
    for mine, theirs in zip(found, dense(clouds), strict=True):
        assert_same(mine, theirs)
    times = near.profile(clouds, repeats=2)
    assert {"neck", "head", "backbone 1/1"} <= set(times)
    for mine, again in zip(found, near(clouds), strict=True):
        assert np.array_equal(mine.boxes, again.boxes)


def test_lists_that_do_not_fit_grow(
    runner: Callable[..., FrameRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = runner(dense=True)
    monkeypatch.setattr("perception.run.room._LEAST_PILLARS", 8)
    near = runner()
    one = cloud(80, 8)
    before = near.graph_for([one]).room
    found = near([one])[0]
    after = near.graph_for([one]).room
    assert before.nearby == (8,) * LISTS
    assert found.overflow == 0
    assert list(after.nearby) == sorted(after.nearby)
    assert 8 < after.nearby[-1] <= 288
    assert_same(found, dense([one])[0])


def test_a_frame_near_everything_is_computed_everywhere(runner: Callable[..., FrameRunner]) -> None:
    near, dense = runner(), runner(dense=True)
    full = torch.cat([cloud(200, 9, corner=1.0), cloud(200, 10, corner=1.0)])
    full[200:, 1] += 20.0
    assert len(near.graph_for([full]).room.nearby) == LISTS
    found = near([full])[0]
    assert near.graph_for([full]).room.nearby == ()
    assert_same(found, dense([full])[0])
    # It stays so, because the room of a graph only grows.
    few = cloud(30, 11)
    assert_same(near([few])[0], dense([few])[0])
    assert near.graph_for([few]).room.nearby == ()


def test_overflow_is_told(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perception.run.room._DENSE_CELLS", 0)
    monkeypatch.setattr("perception.run.room._LEAST_PILLARS", 256)
    near = FrameRunner(
        network, graph_steps(network.config), dtype=torch.float32, impl="reference", overflow="warn"
    )
    one = cloud(80, 12)
    with torch.inference_mode():
        # A runner that may not grow has room for every cell in the first place.
        assert near.graph_for([one]).room.nearby == (288,) * LISTS
        assert near([one])[0].overflow == 0
        near._graphs.clear()
        room = near._first_room(1)._replace(nearby=(20,) * LISTS)
        near._first_room = lambda batch_size: room  # type: ignore[method-assign]
        with pytest.warns(CapacityWarning, match="the CUDA graph is too small"):
            found = near([one])[0]
    assert found.overflow > 20


def test_rooms_hold_smaller_ones() -> None:
    room = Room(1, 100, (8, 8), (5, 5))
    assert room.holds(room)
    assert room.holds(Room(1, 90, (8, 7), (5, 4)))
    assert not room.holds(room._replace(points=101))
    assert not room.holds(room._replace(capacities=(8, 9)))
    assert not room.holds(room._replace(nearby=(5, 6)))
    assert not room.holds(room._replace(nearby=()))
    assert room._replace(nearby=()).holds(room)


def test_lists_for_another_neck(network: Network) -> None:
    with pytest.raises(ValueError, match="2 blocks need 6 capacities, got 5"):
        SparseSteps(network, batch_size=1, capacities=(9, 9, 9), nearby=(9,) * 5, impl="reference")
