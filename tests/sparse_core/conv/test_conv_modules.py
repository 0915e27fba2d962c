from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sparse_core.conv import (
    SparseConv2d,
    SparseConv3d,
    SparseInverseConv2d,
    SparseInverseConv3d,
    SparseMaxPool2d,
    SparseTensor,
    SubmanifoldConv2d,
    SubmanifoldConv3d,
    build_table,
)
from sparse_core.errors import ImplementationError

Sparse = Callable[..., SparseTensor]
SHAPES = {2: (9, 11), 3: (5, 7, 6)}

CASES: dict[str, Callable[..., nn.Module]] = {
    "submanifold 2-D": lambda **kwargs: SubmanifoldConv2d(6, 5, 3, **kwargs),
    "submanifold 2-D 5x3": lambda **kwargs: SubmanifoldConv2d(6, 5, (5, 3), **kwargs),
    "submanifold 3-D": lambda **kwargs: SubmanifoldConv3d(6, 5, 3, **kwargs),
    "strided 2-D": lambda **kwargs: SparseConv2d(6, 5, 3, stride=2, padding=1, **kwargs),
    "strided 2-D 2x3": lambda **kwargs: SparseConv2d(6, 5, (2, 3), stride=(2, 1), padding=(0, 1), **kwargs),
    "strided 3-D": lambda **kwargs: SparseConv3d(6, 5, 3, stride=2, padding=1, **kwargs),
    "dilated submanifold 2-D": lambda **kwargs: SubmanifoldConv2d(6, 5, (3, 5), dilation=(4, 1), **kwargs),
    "dilated strided 3-D": lambda **kwargs: SparseConv3d(
        6, 5, 3, stride=(1, 2, 1), padding=2, dilation=(1, 2, 2), **kwargs
    ),
}
cases = pytest.mark.parametrize("make", CASES.values(), ids=CASES.keys())


def dense_layer(layer: Any) -> nn.Module:
    """The dense layer of torch with the same weights."""
    kind: Any = nn.Conv2d if layer.dimensions == 2 else nn.Conv3d
    channels_out, *kernel, channels_in = layer.weight.shape
    dense = kind(
        channels_in * layer.groups,
        channels_out,
        tuple(kernel),
        stride=layer.stride,
        padding=layer.padding,
        dilation=layer.dilation,
        groups=layer.groups,
        bias=layer.bias is not None,
    )
    dense.weight = nn.Parameter(layer.weight.detach().movedim(-1, 1).contiguous())
    if layer.bias is not None:
        dense.bias = nn.Parameter(layer.bias.detach().clone())
    assert isinstance(dense, nn.Module)
    return dense


@cases
@pytest.mark.parametrize("bias", [False, True])
def test_layers_match_dense_layers(random_sparse: Sparse, make: Callable[..., Any], bias: bool) -> None:
    layer = make(bias=bias).double()
    if bias:
        nn.init.normal_(layer.bias)
    inputs = random_sparse(SHAPES[layer.dimensions], 6, batch_size=3, empty_frame=1)
    output = layer(inputs)
    expected = dense_layer(layer)(inputs.to_dense())
    assert (output.batch_size, output.spatial_shape) == (3, tuple(expected.shape[2:]))
    at_active = expected.movedim(1, -1)[output.coordinates.long().unbind(1)]
    torch.testing.assert_close(output.features, at_active, rtol=0, atol=1e-10)
    if not layer.submanifold and not bias:
        # Everything that the dense layer finds is at an active cell.
        torch.testing.assert_close(output.to_dense(), expected, rtol=0, atol=1e-10)


GROUPED: dict[str, Callable[..., nn.Module]] = {
    "submanifold": lambda: SubmanifoldConv2d(6, 9, 3, groups=3, bias=True),
    "depthwise strided": lambda: SparseConv3d(6, 6, 3, stride=2, padding=1, groups=6),
    "dilated": lambda: SubmanifoldConv2d(6, 4, 3, dilation=2, groups=2),
}


@pytest.mark.parametrize("make", GROUPED.values(), ids=GROUPED.keys())
def test_groups_match_dense_layers(random_sparse: Sparse, make: Callable[[], Any]) -> None:
    layer = make().double()
    inputs = random_sparse(SHAPES[layer.dimensions], 6, batch_size=3, empty_frame=1)
    results = []
    for run in (layer, dense_layer(layer)):
        features = inputs.features.clone().requires_grad_()
        given = inputs.with_features(features)
        found = layer(given) if run is layer else run(given.to_dense()).movedim(1, -1)
        if run is layer:
            cells, values = found.coordinates.long().unbind(1), found.features
        else:
            values = found[cells]
        (values * torch.sin(values)).sum().backward()
        weight = run.weight.grad if run is layer else run.weight.grad.movedim(1, -1)
        results.append((values, features.grad, weight))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match="groups must divide 6 and 5 channels, got 3"):
        SubmanifoldConv2d(6, 5, groups=3)
    layer.impl = "vendor"
    with pytest.raises(ImplementationError, match="does not support groups"):
        layer(inputs)


def sorted_output(output: SparseTensor) -> tuple[Tensor, Tensor]:
    ordered = output.sorted_rows()
    return ordered.coordinates, ordered.features


@cases
@pytest.mark.parametrize("bias", [False, True])
def test_vendor_layers_match_the_reference(
    random_sparse: Sparse, make: Callable[..., Any], bias: bool
) -> None:
    pytest.importorskip("spconv")
    layer = make(bias=bias)
    vendor = make(bias=bias, impl="vendor")
    vendor.load_state_dict(layer.state_dict())
    inputs = random_sparse(SHAPES[layer.dimensions], 6, batch_size=3, empty_frame=1, dtype=torch.float32)
    results = []
    for module in (layer, vendor):
        features = inputs.features.clone().requires_grad_()
        cells = SparseTensor(features, inputs.coordinates, inputs.spatial_shape, 3)
        output = module(cells)
        # Weighting each output by its cell makes the gradient independent of the order of rows.
        share = torch.sin(output.coordinates.float() @ torch.arange(1.0, output.coordinates.shape[1] + 1))
        (output.features.square() * share[:, None]).sum().backward()
        results.append((*sorted_output(output), features.grad, module.weight.grad))
        assert ("spconv" in cells.cache) == (module is vendor)
    assert vendor._vendor_layer.weight is vendor.weight
    assert torch.equal(results[0][0], results[1][0])
    for found, expected in zip(results[1][1:], results[0][1:], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@cases
def test_vendor_layers_take_no_cells(random_sparse: Sparse, make: Callable[..., Any]) -> None:
    pytest.importorskip("spconv")
    layer = make(impl="vendor", bias=True)
    inputs = random_sparse(SHAPES[layer.dimensions], 6, density=0.0, dtype=torch.float32)
    output, expected = layer(inputs), make()(inputs)
    assert output.features.shape == (0, 5)
    assert output.spatial_shape == expected.spatial_shape
    output.features.sum().backward()
    assert not bool(layer.weight.grad.any())


def test_vendor_layer_in_a_copy_shares_the_weight_of_the_copy(random_sparse: Sparse) -> None:
    pytest.importorskip("spconv")
    layer = SubmanifoldConv2d(6, 5, impl="vendor")
    inputs = random_sparse((6, 7), 6, dtype=torch.float32)
    before = layer(inputs).features
    twin = copy.deepcopy(layer)
    with torch.no_grad():
        twin.weight.zero_()
    assert not bool(twin(inputs).features.any())
    assert torch.equal(layer(inputs).features, before)
    assert list(layer.state_dict()) == ["weight"]


def test_vendor_that_is_not_installed_raises(random_sparse: Sparse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparse_core.conv.convolution.vendor.module_available", lambda name: False)
    layer = SubmanifoldConv2d(6, 5, impl="vendor")
    with pytest.raises(ImplementationError, match="impl='vendor' needs spconv, which is not installed"):
        layer(random_sparse((6, 7), 6, dtype=torch.float32))


def test_not_dilating_computes_the_same_values_at_fewer_cells(random_sparse: Sparse) -> None:
    full = SparseConv2d(6, 5, stride=2, padding=1).double()
    small = SparseConv2d(6, 5, stride=2, padding=1, dilating=False).double()
    small.load_state_dict(full.state_dict())
    inputs = random_sparse((20, 21), 6, density=0.05)
    kept, everything = small(inputs), full(inputs)
    assert len(kept) < len(everything)
    at_kept = everything.to_dense().movedim(1, -1)[kept.coordinates.long().unbind(1)]
    torch.testing.assert_close(kept.features, at_kept, rtol=0, atol=1e-12)
    with pytest.raises(ImplementationError, match="dilating=False"):
        SparseConv2d(6, 5, stride=2, dilating=False, impl="vendor")(inputs)


def test_layers_on_the_same_cells_share_one_map(random_sparse: Sparse) -> None:
    inputs = random_sparse((9, 9), 6)
    network = nn.Sequential(SubmanifoldConv2d(6, 6), SubmanifoldConv2d(6, 4)).double()
    output = network(inputs)
    assert output.cache is inputs.cache
    first = inputs.submanifold_table((3, 3))
    assert output.submanifold_table((3, 3)) is first
    down = SparseConv2d(4, 4, 3, stride=2, padding=1).double()
    assert down(output).coordinates is down(output).coordinates


def test_result_does_not_depend_on_the_order_of_cells(random_sparse: Sparse, device: torch.device) -> None:
    network = nn.Sequential(SubmanifoldConv2d(6, 8), SparseConv2d(8, 5, stride=2, padding=1)).to(device)
    inputs = random_sparse((30, 31), 6, dtype=torch.float32)
    expected = network(SparseTensor(inputs.features.to(device), inputs.coordinates.to(device), (30, 31), 2))
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    shuffled = SparseTensor(
        inputs.features[order].to(device), inputs.coordinates[order].to(device), (30, 31), 2
    )
    with pytest.raises(ValueError, match="sorted_rows"):
        network(shuffled)
    found = network(shuffled.sorted_rows())
    assert torch.equal(found.coordinates, expected.coordinates)
    assert torch.equal(found.features, expected.features)


def test_wrong_layers() -> None:
    with pytest.raises(ValueError, match="kernel_size needs 2 entries"):
        SparseConv2d(3, 3, (3, 3, 3))
    with pytest.raises(ValueError, match="stride needs 3 entries"):
        SparseConv3d(3, 3, 3, stride=(2, 2))
    with pytest.raises(ValueError, match="odd sizes"):
        SubmanifoldConv2d(3, 3, (3, 2))
    with pytest.raises(ValueError, match="impl must be one of"):
        SparseConv2d(3, 3, impl="dense")  # type: ignore[arg-type]


def test_inputs_that_do_not_fit() -> None:
    table = build_table(torch.zeros(1, 3, dtype=torch.int64), (4, 4))
    flat = SparseTensor.from_table(torch.ones(1, 3, dtype=torch.float64), table, batch_size=1)
    with pytest.raises(ValueError, match=r"this layer is 3-D but the input is 2-D, \(4, 4\)"):
        SubmanifoldConv3d(3, 3)(flat)
    with pytest.raises(ValueError, match=r"features are torch\.float64 but the weight is torch\.float32"):
        SubmanifoldConv2d(3, 3)(flat)
    with pytest.raises(ValueError, match=r"whole numbers of cells, got \(4\.5, 4\)"):
        build_table(table.coordinates, (4.5, 4))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="coordinates must be a tensor, got list"):
        build_table([[0, 0, 0]], (4, 4))  # type: ignore[arg-type]


def test_fresh_weights_are_finite_and_scaled(poisoned_memory: None) -> None:
    layer = SparseConv2d(64, 64, 3, bias=True)
    assert bool(torch.isfinite(layer.weight).all())
    assert float(layer.weight.detach().std()) == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.05)
    assert layer.bias is not None
    assert not bool(layer.bias.any())
    assert (
        repr(layer) == "SparseConv2d(64, 64, kernel_size=(3, 3), stride=(1, 1), padding=(0, 0), impl='auto')"
    )


INVERSE: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "2-D": (SparseConv2d, SparseInverseConv2d, {"kernel_size": 3, "stride": 2, "padding": 1}),
    "2-D 2x3": (
        SparseConv2d,
        SparseInverseConv2d,
        {"kernel_size": (2, 3), "stride": (2, 1), "padding": (0, 1)},
    ),
    "3-D": (SparseConv3d, SparseInverseConv3d, {"kernel_size": 3, "stride": 2, "padding": 1}),
}
inverses = pytest.mark.parametrize(("down", "up", "geometry"), INVERSE.values(), ids=INVERSE.keys())


@inverses
def test_inverse_layers_are_transposed_convolutions(
    random_sparse: Sparse, down: Any, up: Any, geometry: dict[str, Any]
) -> None:
    down, up = down(6, 5, **geometry).double(), up(5, 4, **geometry, bias=True).double()
    nn.init.normal_(up.bias)
    inputs = random_sparse(SHAPES[down.dimensions], 6, batch_size=3, empty_frame=1)
    small = down(inputs)
    output = up(small, inputs)
    assert output.cache is inputs.cache
    transpose: Any = (
        nn.functional.conv_transpose2d if down.dimensions == 2 else nn.functional.conv_transpose3d
    )
    steps = {"stride": up.stride, "padding": up.padding}
    weight = up.weight.movedim(-1, 0)
    short = transpose(small.to_dense(), weight, **steps).shape[2:]
    missing = tuple(size - found for size, found in zip(inputs.spatial_shape, short, strict=True))
    dense = transpose(small.to_dense(), weight, up.bias, **steps, output_padding=missing)
    expected = dense.movedim(1, -1)[inputs.coordinates.long().unbind(1)]
    torch.testing.assert_close(output.features, expected, rtol=0, atol=1e-10)


@inverses
def test_inverse_layers_match_spconv(
    random_sparse: Sparse, down: Any, up: Any, geometry: dict[str, Any]
) -> None:
    pytest.importorskip("spconv")
    from sparse_core.conv.convolution.vendor import import_spconv

    spconv = import_spconv()
    from spconv.core import ConvAlgo

    down, up = down(6, 5, **geometry), up(5, 4, **geometry)
    inputs = random_sparse(SHAPES[down.dimensions], 6, batch_size=3, dtype=torch.float32)
    options = {"bias": False, "indice_key": "down", "algo": ConvAlgo.Native}
    kernel = list(down.kernel_size)
    steps = {"stride": list(down.stride), "padding": list(down.padding)}
    their_down = getattr(spconv, f"SparseConv{down.dimensions}d")(6, 5, kernel, **steps, **options)
    their_up = getattr(spconv, f"SparseInverseConv{down.dimensions}d")(5, 4, kernel, **options)
    their_down.weight, their_up.weight = down.weight, up.weight
    results = []
    for ours in (True, False):
        features = inputs.features.clone().requires_grad_()
        if ours:
            cells = SparseTensor(features, inputs.coordinates, inputs.spatial_shape, 3)
            found = up(down(cells), cells).features
        else:
            theirs = spconv.SparseConvTensor(features, inputs.coordinates, list(inputs.spatial_shape), 3)
            found = their_up(their_down(theirs)).features
        found.square().sum().backward()
        results.append((found, features.grad, up.weight.grad.clone(), down.weight.grad.clone()))
        up.weight.grad = down.weight.grad = None
    for left, right in zip(*results, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-4)


def test_inverse_layers_need_the_cells_of_their_strided_layer(random_sparse: Sparse) -> None:
    inputs = random_sparse((9, 11), 6, dtype=torch.float32)
    up = SparseInverseConv2d(5, 4, 3, stride=2, padding=1)
    small = SparseConv2d(6, 5, 3, stride=2, padding=1)(inputs)
    copied = SparseTensor(small.features, small.coordinates.clone(), small.spatial_shape, 2)
    assert torch.equal(up(copied, inputs).features, up(small, inputs).features)
    with pytest.raises(ValueError, match="target is missing"):
        up(small)
    with pytest.raises(ValueError, match="that kernel"):
        up(random_sparse((5, 6), 5, seed=4, dtype=torch.float32), inputs)
    with pytest.raises(ImplementationError, match="inverse layers do not support"):
        SparseInverseConv2d(5, 4, 3, stride=2, padding=1, impl="vendor")(small, inputs)
    kept = SparseConv2d(6, 5, 3, stride=2, padding=1, dilating=False)(inputs)
    back = SparseInverseConv2d(5, 4, 3, stride=2, padding=1, dilating=False)(kept, inputs)
    assert back.features.shape == (len(inputs), 4)


def test_wrong_inputs_and_sizes_are_named() -> None:
    for layer in (SparseConv2d(3, 4), SparseMaxPool2d(2)):
        with pytest.raises(TypeError, match=r"must be a SparseTensor, got Tensor: make one with"):
            layer(torch.zeros(1, 3, 4, 4))
    with pytest.raises(TypeError, match="padding must be a whole number or 2 of them, got 'same'"):
        SparseConv2d(3, 4, padding="same")  # type: ignore[arg-type]
    for options in ({"kernel_size": 0}, {"stride": 0}, {"dilation": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} must be at least 1"):
            SparseConv2d(3, 4, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1 channel, got 0 and 4"):
        SparseConv2d(0, 4)
