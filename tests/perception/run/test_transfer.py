"""Blocks that carry frames to a graph and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from perception.run.graph_steps import FrameBoxes
from perception.run.transfer import InputBlock, Unpacking, packed


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
    assert not block.words[block.used(len(clouds[0])) :].any() or batch_size > 1


def test_other_dtypes_and_strides_arrive_as_float32() -> None:
    block = InputBlock(1, 6, device=torch.device("cpu"))
    wide = torch.arange(40, dtype=torch.float64).reshape(5, 8)
    block.through(block, [wide[:, ::2]])
    assert block.scans.points[0, :5].tolist() == wide[:, ::2].tolist()


def test_parts_come_back_as_they_were() -> None:
    found = FrameBoxes(
        torch.randn(2, 3, 7),
        torch.rand(2, 3, dtype=torch.float64).float(),
        torch.tensor([[0, 1, -1], [2, -1, -1]]),
        torch.tensor([2, 1], dtype=torch.int32),
        torch.tensor([5, 6, 7, 8], dtype=torch.int32),
        torch.randn(2, 3, 0),
    )
    back = Unpacking(found)(packed(found).numpy())
    for part, given in zip(back, found, strict=True):
        assert part.shape == tuple(given.shape)
        assert part.dtype == (np.float32 if given.is_floating_point() else np.int32)
        np.testing.assert_array_equal(part, given.numpy())
