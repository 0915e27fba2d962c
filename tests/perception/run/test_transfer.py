"""Blocks that carry frames to a graph and back."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from perception.run.transfer import InputBlock


@pytest.mark.parametrize("batch_size", [1, 3, 4, 5])
def test_clouds_arrive_with_their_lengths(batch_size: int) -> None:
    block, host = (InputBlock(batch_size, 10, device=torch.device("cpu")) for _ in range(2))
    random = torch.Generator().manual_seed(batch_size)
    clouds = [torch.randn((count % 11, 4), generator=random) for count in range(4, 4 + batch_size)]
    block.through(host, clouds)
    assert block.scans.lengths.tolist() == [len(cloud) for cloud in clouds]
    assert block.scans.points.shape == (batch_size, 10, 4)
    assert block.scans.points.data_ptr() % 16 == 0
    for row, cloud in zip(block.scans.points, clouds, strict=True):
        assert torch.equal(row[: len(cloud)], cloud)


def test_a_frame_goes_from_block_to_block() -> None:
    block, staged = (InputBlock(1, 2000, device=torch.device("cpu")) for _ in range(2))
    for count in (1500, 0, 3):
        cloud = torch.rand((count, 4))
        staged.through(staged, [cloud])
        block.take(staged, count)
        assert block.scans.lengths.tolist() == [count]
        assert torch.equal(block.scans.points[0, :count], cloud)


def test_many_points_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perception.run.transfer._MANY", 100)
    block, host = (InputBlock(2, 3000, device=torch.device("cpu")) for _ in range(2))
    clouds = [torch.rand((count, 4)) for count in (2999, 101)]
    block.through(host, clouds)
    for row, cloud in zip(block.scans.points, clouds, strict=True):
        assert torch.equal(row[: len(cloud)], cloud)


def test_other_dtypes_and_strides_arrive_as_float32() -> None:
    block = InputBlock(1, 6, device=torch.device("cpu"))
    wide = torch.arange(40, dtype=torch.float64).reshape(5, 8)
    block.through(block, [wide[:, ::2]])
    assert block.scans.points[0, :5].tolist() == wide[:, ::2].tolist()


def test_memory_goes_with_the_block() -> None:
    block = InputBlock(1, 2000, device=torch.device("cpu"))
    block.through(block, [torch.rand((10, 4))])
    words = weakref.ref(block.words)
    gc.disable()
    try:
        del block
        # A larger graph's memory is asked for now: nothing may wait for the collector of cycles.
        assert words() is None
    finally:
        gc.enable()
