"""Copies of packed weights, and masks that do not fit."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from sparse_core.nm.packing.packed import PackedNM


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda packed: pickle.loads(pickle.dumps(packed))])
def test_copies_have_no_plans_of_the_original(way: object) -> None:
    packed = PackedNM.from_dense(torch.tensor([[1.0, 0, 2, 0, 0, 3, 0, 4]]))
    packed.plans["cuda"] = object()
    copied = way(packed)  # type: ignore[operator]
    assert copied.plans == {}
    assert list(packed.plans) == ["cuda"]
    assert copied.pattern == packed.pattern
    assert torch.equal(copied.to_dense(), packed.to_dense())


def test_masks_that_do_not_fit() -> None:
    weight = torch.ones(2, 8)
    with pytest.raises(TypeError, match=r"mask must be bool, got torch\.float32"):
        PackedNM.from_dense(weight, mask=weight)
    with pytest.raises(ValueError, match=r"weight's shape \(2, 8\), got \(1, 8\)"):
        PackedNM.from_dense(weight, mask=torch.zeros(1, 8, dtype=torch.bool))
    with pytest.raises(ValueError, match="row 0, group 0"):
        PackedNM.from_dense(weight, mask=torch.ones(2, 8, dtype=torch.bool))
