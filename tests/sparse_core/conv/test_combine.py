"""Sums and concatenation of sparse tensors, on the same cells and on others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from sparse_core.conv import SparseTensor, cat

Sparse = Callable[..., SparseTensor]


def test_on_the_same_cells(random_sparse: Sparse) -> None:
    one = random_sparse((6, 7), 3)
    other = one.with_features(one.features * 2)
    assert torch.equal((one + other).features, one.features * 3)
    assert (one + other).cache is one.cache
    assert torch.equal(
        cat([one, other, one]).features, torch.cat([one.features, other.features, one.features], 1)
    )


@pytest.mark.parametrize("density", [0.0, 0.3])
def test_on_other_cells(random_sparse: Sparse, density: float) -> None:
    one, other = random_sparse((6, 7), 3, density=density), random_sparse((6, 7), 3, seed=5)
    features = [tensor.features.clone().requires_grad_() for tensor in (one, other)]
    first, second = (tensor.with_features(own) for tensor, own in zip((one, other), features, strict=True))
    total, beside = first + second, cat([first, second])
    assert torch.equal(total.to_dense(), first.to_dense() + second.to_dense())
    assert torch.equal(beside.to_dense(), torch.cat([first.to_dense(), second.to_dense()], 1))
    cells = {tuple(cell) for tensor in (one, other) for cell in tensor.coordinates.tolist()}
    assert {tuple(cell) for cell in total.coordinates.tolist()} == cells
    (total.features.sum() + 2 * beside.features.sum()).backward()
    assert all(bool((own.grad == 3.0).all()) for own in features if own.grad is not None)


def test_rows_in_any_order(random_sparse: Sparse) -> None:
    one, other = random_sparse((6, 7), 3), random_sparse((6, 7), 3, seed=5)
    order = torch.randperm(len(one), generator=torch.Generator().manual_seed(0))
    mixed = SparseTensor(one.features[order], one.coordinates[order], (6, 7), 2)
    assert torch.equal((mixed + other).to_dense(), (one + other).to_dense())


def test_operands_that_do_not_match(random_sparse: Sparse) -> None:
    one = random_sparse((6, 7), 3)
    with pytest.raises(ValueError, match="cannot add 3 and 2 channels"):
        one + random_sparse((6, 7), 2)
    with pytest.raises(ValueError, match="share grid and batch size"):
        cat([one, random_sparse((6, 8), 3)])
    with pytest.raises(ValueError, match="at least one"):
        cat([])
    with pytest.raises(TypeError):
        one + 3  # type: ignore[operator]
