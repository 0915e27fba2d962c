from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from sparse_core.conv import NeighbourTable, SparseTensor, sparse_convolution
from sparse_core.conv.convolution import reference
from sparse_core.errors import ImplementationError

Sparse = Callable[..., SparseTensor]


class Layer(NamedTuple):
    """Geometry of a convolution; ``submanifold`` layers have stride 1 and centred kernels."""

    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    submanifold: bool = False


LAYERS = {
    "submanifold 3x3": Layer((3, 3), (1, 1), (1, 1), True),
    "submanifold 1x5": Layer((1, 5), (1, 1), (0, 2), True),
    "submanifold 1x1": Layer((1, 1), (1, 1), (0, 0), True),
    "strided 3x3": Layer((3, 3), (2, 2), (1, 1)),
    "uneven 2x3": Layer((2, 3), (1, 2), (0, 1)),
    "own cells 2x2": Layer((2, 2), (2, 2), (0, 0)),
    "submanifold 3x3x3": Layer((3, 3, 3), (1, 1, 1), (1, 1, 1), True),
    "strided 3x3x3": Layer((3, 3, 3), (2, 2, 2), (1, 1, 1)),
    "flat 3x1x2": Layer((3, 1, 2), (2, 1, 1), (0, 0, 1)),
}
SHAPES = {2: (7, 10), 3: (5, 6, 7)}
layers = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS.keys())


def map_of(inputs: SparseTensor, layer: Layer) -> tuple[NeighbourTable, Tensor]:
    """Kernel map and the coordinates of its outputs."""
    if layer.submanifold:
        return inputs.submanifold_table(layer.kernel_size), inputs.coordinates
    neighbours, outputs = inputs.strided_table(layer.kernel_size, layer.stride, layer.padding)
    return neighbours, outputs.coordinates


def dense_twin(
    inputs: SparseTensor, features: Tensor, weight: Tensor, layer: Layer, outputs: Tensor
) -> Tensor:
    """The dense convolution of torch, read at the active outputs: (M, C_out)."""
    convolve: Any = functional.conv2d if len(layer.kernel_size) == 2 else functional.conv3d
    dense = inputs.with_features(features).to_dense()
    result = convolve(dense, weight.movedim(-1, 1), stride=layer.stride, padding=layer.padding)
    found = result.movedim(1, -1)[outputs.long().unbind(1)]
    assert isinstance(found, Tensor)
    return found


def make_weight(layer: Layer, channels_in: int, channels_out: int, seed: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(
        channels_out, *layer.kernel_size, channels_in, generator=generator, dtype=torch.float64
    )


def difference(found: Tensor, expected: Tensor) -> float:
    """Largest absolute difference; infinite where shapes or finiteness differ."""
    if found.shape != expected.shape or not bool(torch.isfinite(found).all()):
        return math.inf
    gap = found.detach().double().cpu() - expected.detach().double().cpu()
    return float(gap.abs().max()) if gap.numel() else 0.0


@layers
@pytest.mark.parametrize("empty_frame", [-1, 1], ids=["full batch", "empty frame"])
@pytest.mark.usefixtures("poisoned_memory")
def test_forward_and_gradients_match_dense(random_sparse: Sparse, layer: Layer, empty_frame: int) -> None:
    shape = SHAPES[len(layer.kernel_size)]
    inputs = random_sparse(shape, 5, batch_size=3, empty_frame=empty_frame, seed=3)
    neighbours, outputs = map_of(inputs, layer)
    found_leaves = [inputs.features.clone(), make_weight(layer, 5, 4), torch.randn(4).double()]
    dense_leaves = [leaf.clone() for leaf in found_leaves]
    for leaf in (*found_leaves, *dense_leaves):
        leaf.requires_grad_()
    features, weight, bias = found_leaves
    found = sparse_convolution(features, weight, neighbours, bias=bias)
    expected = dense_twin(inputs, dense_leaves[0], dense_leaves[1], layer, outputs) + dense_leaves[2]
    assert difference(found, expected) < 1e-10
    upstream = torch.randn_like(expected)
    found_gradients = torch.autograd.grad(found, found_leaves, upstream)
    dense_gradients = torch.autograd.grad(expected, dense_leaves, upstream)
    for left, right in zip(found_gradients, dense_gradients, strict=True):
        assert difference(left, right) < 1e-10


@settings(max_examples=30)
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    channels=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    density=st.floats(0, 1),
    name=st.sampled_from([name for name, layer in LAYERS.items() if len(layer.kernel_size) == 2]),
    seed=st.integers(0, 99),
)
def test_any_size_matches_dense(
    random_sparse: Sparse,
    shape: tuple[int, int],
    channels: tuple[int, int],
    density: float,
    name: str,
    seed: int,
) -> None:
    layer = LAYERS[name]
    if min(size + 2 * pad - kernel for size, kernel, pad in zip(shape, *layer[0:3:2], strict=True)) < 0:
        return
    inputs = random_sparse(shape, channels[0], density=density, seed=seed)
    neighbours, outputs = map_of(inputs, layer)
    weight = make_weight(layer, *channels)
    found = sparse_convolution(inputs.features, weight, neighbours)
    assert difference(found, dense_twin(inputs, inputs.features, weight, layer, outputs)) < 1e-10


@layers
def test_gradcheck(random_sparse: Sparse, layer: Layer) -> None:
    shape = (3, 4) if len(layer.kernel_size) == 2 else (3, 3, 2)
    inputs = random_sparse(shape, 2, batch_size=1, density=0.5)
    neighbours, _ = map_of(inputs, layer)
    weight, bias = make_weight(layer, 2, 2).requires_grad_(), torch.randn(2).double().requires_grad_()
    features = inputs.features.clone().requires_grad_()

    def run(*leaves: Tensor) -> Tensor:
        return sparse_convolution(leaves[0], leaves[1], neighbours, bias=leaves[2])

    assert torch.autograd.gradcheck(run, (features, weight, bias))


@layers
def test_no_cells(random_sparse: Sparse, layer: Layer) -> None:
    inputs = random_sparse(SHAPES[len(layer.kernel_size)], 3, density=0.0)
    assert len(inputs) == 0
    neighbours, _ = map_of(inputs, layer)
    features, weight = inputs.features.requires_grad_(), make_weight(layer, 3, 4).requires_grad_()
    found = sparse_convolution(features, weight, neighbours)
    assert found.shape == (0, 4)
    found.sum().backward()
    assert weight.grad is not None
    assert not bool(weight.grad.any())
    assert features.grad is not None
    assert features.grad.shape == (0, 3)


@pytest.mark.parametrize("elements", [1, 100, 1000])
def test_chunks_change_nothing(random_sparse: Sparse, monkeypatch: pytest.MonkeyPatch, elements: int) -> None:
    layer = LAYERS["strided 3x3"]
    inputs = random_sparse((9, 11), 4)
    neighbours, _ = map_of(inputs, layer)
    leaves = [inputs.features.requires_grad_(), make_weight(layer, 4, 3).requires_grad_()]

    def run() -> list[Tensor]:
        output = sparse_convolution(leaves[0], leaves[1], neighbours)
        return [output, *torch.autograd.grad(output.square().sum(), leaves)]

    whole = run()
    monkeypatch.setattr(reference, "GATHER_ELEMENTS", elements)
    for left, right in zip(run(), whole, strict=True):
        assert difference(left, right) < 1e-10


def test_only_needed_gradients_are_computed(random_sparse: Sparse) -> None:
    layer = LAYERS["submanifold 3x3"]
    inputs = random_sparse((6, 6), 3)
    neighbours, _ = map_of(inputs, layer)
    weight = make_weight(layer, 3, 2)
    from_weight = sparse_convolution(inputs.features, weight.requires_grad_(), neighbours)
    from_weight.sum().backward()
    assert weight.grad is not None
    assert inputs.features.grad is None
    features = inputs.features.requires_grad_()
    sparse_convolution(features, weight.detach(), neighbours).sum().backward()
    assert features.grad is not None


def test_same_bits_in_every_run(random_sparse: Sparse, device: torch.device) -> None:
    layer = LAYERS["strided 3x3"]
    inputs = random_sparse((40, 41), 16, dtype=torch.float32)
    runs = []
    for _ in range(2):
        fresh = SparseTensor(inputs.features.to(device), inputs.coordinates.to(device), (40, 41), 2)
        neighbours, _ = map_of(fresh, layer)
        leaves = [
            fresh.features.requires_grad_(),
            make_weight(layer, 16, 8).float().to(device).requires_grad_(),
        ]
        output = sparse_convolution(leaves[0], leaves[1], neighbours)
        runs.append([output, *torch.autograd.grad(output.square().sum(), leaves)])
    for left, right in zip(*runs, strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_low_and_keeps_gradients_in_full(
    random_sparse: Sparse, device: torch.device, dtype: torch.dtype
) -> None:
    layer = LAYERS["submanifold 3x3"]
    inputs = random_sparse((8, 9), 6, dtype=torch.float32)
    neighbours, _ = map_of(
        SparseTensor(inputs.features.to(device), inputs.coordinates.to(device), (8, 9), 2), layer
    )
    features = inputs.features.to(device).requires_grad_()
    weight = make_weight(layer, 6, 4).float().to(device).requires_grad_()
    bias = torch.ones(4, device=device, requires_grad=True)
    full = sparse_convolution(features, weight, neighbours, bias=bias)
    with torch.autocast(device.type, dtype=dtype):
        low = sparse_convolution(features, weight, neighbours, bias=bias)
    assert low.dtype == dtype
    assert difference(low, full) < 0.02 * float(full.detach().abs().max())
    low.float().sum().backward()
    for leaf in (features, weight, bias):
        assert leaf.grad is not None
        assert leaf.grad.dtype == torch.float32
        assert bool(torch.isfinite(leaf.grad).all())


def test_wrong_arguments(random_sparse: Sparse) -> None:
    inputs = random_sparse((6, 6), 3)
    neighbours = inputs.submanifold_table((3, 3))
    weight = make_weight(LAYERS["submanifold 3x3"], 3, 2)
    with pytest.raises(ValueError, match=r"weight must be \(C_out, \*kernel, 3\) with 9 taps"):
        sparse_convolution(inputs.features, weight[:, :2], neighbours)
    with pytest.raises(ValueError, match="features have 2 channels, but the weight takes 3"):
        sparse_convolution(inputs.features[:, :2], weight, neighbours)
    with pytest.raises(ValueError, match=r"got \(2, 3\)"):
        sparse_convolution(inputs.features, weight[:, 0, 0], neighbours)
    with pytest.raises(ValueError, match=f"{len(inputs)} rows like the table, got 2"):
        sparse_convolution(inputs.features[:2], weight, neighbours)
    with pytest.raises(ValueError, match="impl must be one of"):
        sparse_convolution(inputs.features, weight, neighbours, impl="dense")  # type: ignore[arg-type]


def test_spconv_owns_its_maps(random_sparse: Sparse) -> None:
    inputs = random_sparse((6, 6), 3)
    weight = make_weight(LAYERS["submanifold 3x3"], 3, 2)
    with pytest.raises(ImplementationError, match="no vendor implementation"):
        sparse_convolution(inputs.features, weight, inputs.submanifold_table((3, 3)), impl="vendor")


def test_auto_is_the_reference_on_a_cpu(random_sparse: Sparse, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    original = reference.sparse_convolution

    def counted(*arguments: Any) -> Tensor:
        calls.append(1)
        return original(*arguments)

    monkeypatch.setattr(reference, "sparse_convolution", counted)
    inputs = random_sparse((6, 6), 3)
    weight = make_weight(LAYERS["submanifold 3x3"], 3, 2)
    results = [
        sparse_convolution(inputs.features, weight, inputs.submanifold_table((3, 3)), impl=impl)
        for impl in ("auto", "reference")
    ]
    assert len(calls) == 2
    assert torch.equal(*results)


@pytest.mark.gpu
@layers
def test_cuda_matches_cpu(random_sparse: Sparse, cuda: torch.device, layer: Layer) -> None:
    shape = (31, 33) if len(layer.kernel_size) == 2 else (9, 11, 13)
    inputs = random_sparse(shape, 16, seed=2)
    weight = make_weight(layer, 16, 24)
    results = []
    for place in (torch.device("cpu"), cuda):
        moved = SparseTensor(inputs.features.to(place), inputs.coordinates.to(place), shape, 2)
        neighbours, outputs = map_of(moved, layer)
        leaves = [moved.features.requires_grad_(), weight.to(place).requires_grad_()]
        output = sparse_convolution(leaves[0], leaves[1], neighbours)
        results.append([output, *torch.autograd.grad(output.square().sum(), leaves), outputs])
    for found, expected in zip(results[1], results[0], strict=True):
        assert difference(found, expected) <= 1e-9 * max(1.0, float(expected.detach().abs().max()))
