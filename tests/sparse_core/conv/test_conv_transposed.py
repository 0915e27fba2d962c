"""Compare the generative transposed convolution with the dense one of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from sparse_core.conv import (
    SparseConvTranspose2d,
    SparseConvTranspose3d,
    SparseTensor,
    SubmanifoldConv2d,
    transposed_table,
)
from sparse_core.errors import ImplementationError

Sparse = Callable[..., SparseTensor]
CASES: dict[str, dict[str, Any]] = {
    "doubling": {"kernel_size": 2, "stride": 2},
    "overlapping": {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1},
    "dilated": {"kernel_size": (2, 3), "stride": (1, 3), "padding": (0, 2), "dilation": (3, 2)},
    "grouped": {"kernel_size": 3, "stride": 1, "padding": 1, "groups": 2},
    "gaps": {"kernel_size": 1, "stride": 3},
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def dense_layer(layer: SparseConvTranspose2d, kind: Any) -> Any:
    channels_out, *kernel, each = layer.weight.shape
    dense = kind(
        each * layer.groups,
        channels_out,
        tuple(kernel),
        stride=layer.stride,
        padding=layer.padding,
        output_padding=layer.output_padding,
        dilation=layer.dilation,
        groups=layer.groups,
        bias=False,
    ).double()
    # (C_out, *kernel, C_in / groups) to torch's (C_in, C_out / groups, *kernel).
    parts = [part.movedim(-1, 0) for part in layer.weight.detach().chunk(layer.groups)]
    dense.weight = nn.Parameter(torch.cat(parts).contiguous())
    return dense


@cases
def test_equals_the_dense_layer(random_sparse: Sparse, case: dict[str, Any]) -> None:
    layer = SparseConvTranspose2d(6, 4, **case).double()
    inputs = random_sparse((5, 6), 6, batch_size=3, empty_frame=1, density=0.2)
    dense = dense_layer(layer, nn.ConvTranspose2d)
    results = []
    for run in (layer, dense):
        features = inputs.features.clone().requires_grad_()
        given = inputs.with_features(features)
        found = layer(given).to_dense() if run is layer else dense(given.to_dense())
        (found * torch.cos(found)).sum().backward()
        results.append((found, features.grad))
    assert results[0][0].shape == results[1][0].shape
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_in_three_dimensions_and_after_other_layers(random_sparse: Sparse, device: torch.device) -> None:
    layer = SparseConvTranspose3d(6, 4, 2, stride=2).double()
    inputs = random_sparse((3, 4, 5), 6, density=0.2)
    expected = dense_layer(layer, nn.ConvTranspose3d)(inputs.to_dense())
    found = layer.to(device)(inputs.to(device))
    torch.testing.assert_close(found.to_dense().cpu(), expected, rtol=0, atol=1e-10)
    flat = random_sparse((5, 6), 6)
    network = nn.Sequential(
        SparseConvTranspose2d(6, 5, 3, stride=2, bias=True),
        nn.BatchNorm1d(5),
        nn.ReLU(),
        SubmanifoldConv2d(5, 3),
    ).double()
    output = network(flat)
    assert output.spatial_shape == (11, 13)
    assert len(output) > len(flat)


def test_map_is_cached_and_bad_sizes_are_refused(random_sparse: Sparse) -> None:
    inputs = random_sparse((5, 6), 6)
    layer = SparseConvTranspose2d(6, 4, 3, stride=2)
    assert layer.tables(inputs)[0] is layer.tables(inputs)[0]
    with pytest.raises(ValueError, match="output_padding must be at least 0 and below"):
        transposed_table(inputs.table(), (3, 3), (2, 2), (0, 0), output_padding=(2, 0))
    with pytest.raises(ValueError, match="larger than the grid"):
        transposed_table(inputs.table(), (1, 1), (1, 1), (4, 4))
    with pytest.raises(ValueError, match="dilation needs 2 entries"):
        transposed_table(inputs.table(), (1, 1), (1, 1), (0, 0), dilation=(0, 1))
    with pytest.raises(ImplementationError, match="transposed"):
        SparseConvTranspose2d(6, 4, impl="vendor")(inputs)


def test_no_cells(random_sparse: Sparse) -> None:
    found = SparseConvTranspose2d(6, 4, 2, stride=2)(
        random_sparse((5, 6), 6, density=0.0, dtype=torch.float32)
    )
    assert found.features.shape == (0, 4)
    assert found.spatial_shape == (10, 12)
