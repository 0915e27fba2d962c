"""One function for every pattern, and masks for a whole model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sparse_core.nm.masks import block_mask, nm_mask, pattern_mask
from sparse_core.nm.pattern import Block, NMPattern
from sparse_core.nm.pruning.selection import magnitude_masks


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_each_pattern_has_its_mask(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(16, 8, 3, 3, generator=generator).to(dtype)
    score = torch.rand(weight.shape, generator=generator)
    assert pattern_mask(weight, None).all()
    assert torch.equal(pattern_mask(weight, NMPattern(1, 3)), nm_mask(weight, 1, 3))
    assert torch.equal(pattern_mask(weight, NMPattern(1, 3), score), nm_mask(weight, 1, 3, score))
    across = pattern_mask(weight, NMPattern(2, 4, "channels_last"))
    assert torch.equal(across, nm_mask(weight, 2, 4, conv_layout="channels_last"))
    assert torch.equal(pattern_mask(weight, Block(8, 0.5), score), block_mask(weight, Block(8, 0.5), score))
    with pytest.raises(TypeError, match="NMPattern, Block or None, got '2:4'"):
        pattern_mask(weight, "2:4")  # type: ignore[arg-type]


def test_masks_of_a_model() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 6), nn.Linear(6, 2))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    masks = magnitude_masks(model)
    assert {name: int(mask.sum()) for name, mask in masks.items()} == {"0": 32, "1": 24}
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    mixed = magnitude_masks(model, {"0": NMPattern(1, 8), "1": None, "2": NMPattern(1, 2)})
    assert {name: int(mask.sum()) for name, mask in mixed.items()} == {"0": 8, "2": 6}
    assert list(magnitude_masks(model, NMPattern(1, 2), select="^[12]$")) == ["1", "2"]
    with pytest.raises(ValueError, match="no layer matches"):
        magnitude_masks(model, NMPattern(1, 7))
