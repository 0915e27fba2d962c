"""Compare pooling of active cells with dense pooling."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from sparse_core.conv import (
    SparseAvgPool2d,
    SparseAvgPool3d,
    SparseMaxPool2d,
    SparseMaxPool3d,
    SparseTensor,
    global_pool,
)

Sparse = Callable[..., SparseTensor]
SIZES: dict[str, dict[str, Any]] = {
    "blocks": {"kernel_size": 2},
    "overlapping": {"kernel_size": 3, "stride": 2, "padding": 1},
    "dilated": {"kernel_size": (3, 2), "stride": (1, 2), "padding": (1, 0), "dilation": (2, 3)},
}
sizes = pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())


def dense_with(inputs: SparseTensor, empty: float) -> Tensor:
    """(B, C, *spatial) with a number where nothing is active."""
    active = inputs.with_features(torch.ones_like(inputs.features)).to_dense()
    return torch.where(active > 0, inputs.to_dense(), empty)


@sizes
def test_maximum_is_that_of_a_map_of_minus_infinity(
    random_sparse: Sparse, size: dict[str, Any], device: torch.device
) -> None:
    inputs = random_sparse((9, 10), 3, batch_size=3, empty_frame=1, density=0.2)
    inputs = inputs.with_features(-inputs.features.abs() - 1.0)  # zeros would win
    features = inputs.features.requires_grad_()
    expected = F.max_pool2d(dense_with(inputs, -math.inf), **size)
    values = expected[expected > -math.inf]
    wanted = torch.autograd.grad((values * torch.sin(values)).sum(), features)[0]
    moved = inputs.features.detach().to(device).requires_grad_()
    found = SparseMaxPool2d(**size)(inputs.to(device).with_features(moved))
    assert len(found) == int((expected[:, 0] > -math.inf).sum())
    at_cells = expected.movedim(1, -1)[found.coordinates.cpu().long().unbind(1)]
    assert torch.equal(found.features.cpu(), at_cells)
    (grad,) = torch.autograd.grad((found.features * torch.sin(found.features)).sum(), moved)
    torch.testing.assert_close(grad.cpu(), wanted, rtol=0, atol=1e-12)


@sizes
def test_mean_counts_active_cells(random_sparse: Sparse, size: dict[str, Any], device: torch.device) -> None:
    inputs = random_sparse((9, 10), 3, batch_size=2, density=0.2)
    found = SparseAvgPool2d(**size)(inputs.to(device)).to("cpu")
    # Dense pooling has no dilation: a convolution with ones has.
    kernel, options = size["kernel_size"], {key: value for key, value in size.items() if key != "kernel_size"}
    shape = (kernel, kernel) if isinstance(kernel, int) else kernel
    ones = torch.ones((3, 1, *shape), dtype=torch.float64)
    options.setdefault("stride", kernel)
    total, count = (
        F.conv2d(one, ones, groups=3, **options)
        for one in (inputs.to_dense(), (dense_with(inputs, math.nan) == inputs.to_dense()).double())
    )
    expected = (total / count).movedim(1, -1)[found.coordinates.long().unbind(1)]
    torch.testing.assert_close(found.features, expected, rtol=0, atol=1e-12)
    assert len(found) == int((count[:, 0] > 0).sum())


def test_gradients_and_their_gradients(random_sparse: Sparse) -> None:
    inputs = random_sparse((4, 5, 4), 2, density=0.3)
    for layer in (SparseAvgPool3d(2), SparseMaxPool3d(2)):

        def run(features: Tensor, layer: Any = layer) -> Tensor:
            found = layer(inputs.with_features(features)).features
            assert isinstance(found, Tensor)
            return found

        features = inputs.features.clone().requires_grad_()
        assert torch.autograd.gradcheck(run, (features,))
        assert torch.autograd.gradgradcheck(run, (features,))


def test_the_first_of_equal_cells_gets_the_gradient_and_nan_is_passed_on() -> None:
    cells = torch.tensor([[0, 0, 0], [0, 0, 1], [0, 1, 1], [0, 2, 2]], dtype=torch.int32)
    features = torch.tensor(
        [[1.0, -math.inf], [1.0, 2.0], [0.0, math.nan], [5.0, -math.inf]], requires_grad=True
    )
    found = SparseMaxPool2d(2)(SparseTensor(features, cells, (4, 4), 1))
    assert found.features[:, 0].tolist() == [1.0, 5.0]
    assert math.isnan(found.features[0, 1].item())
    assert found.features[1, 1].item() == -math.inf
    found.features[:, 0].sum().backward()
    assert features.grad is not None
    assert features.grad[:, 0].tolist() == [1.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("reduce", ["mean", "max", "sum"])
def test_whole_frames(random_sparse: Sparse, reduce: Any) -> None:
    inputs = random_sparse((6, 7), 3, batch_size=3, empty_frame=1)
    found = global_pool(inputs, reduce)
    assert found.shape == (3, 3)
    assert not bool(found[1].any())
    for frame in (0, 2):
        own = inputs.features[inputs.coordinates[:, 0] == frame]
        expected = own.max(0).values if reduce == "max" else getattr(own, reduce)(0)
        torch.testing.assert_close(found[frame], expected, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="reduce must be"):
        global_pool(inputs, "median")  # type: ignore[arg-type]


def test_no_cells_and_bad_sizes(random_sparse: Sparse) -> None:
    nothing = random_sparse((6, 7), 3, density=0.0)
    for layer in (SparseMaxPool2d(2), SparseAvgPool2d(2)):
        assert layer(nothing).features.shape == (0, 3)
    assert not bool(global_pool(nothing).any())
    with pytest.raises(ValueError, match="stride needs 2 entries"):
        SparseMaxPool2d(2, stride=(1, 2, 3))
