"""int8 layers: rounding, scales and the error that rounding can make at most."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from sparse_core.nm.layers.int8_linear import SparseLinearInt8, activation_scale
from sparse_core.nm.layers.rounding import quantise_input
from sparse_core.nm.layers.sparse_linear import SparseLinear
from sparse_core.nm.packing.quantisation import quantise_weight
from sparse_core.nm.pattern import NMPattern
from sparse_core.nm.pruning.calibration import collect_inputs


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def sparse_layer(
    columns: int = 32, out: int = 24, pattern: NMPattern | None = None, **options: object
) -> SparseLinear:
    torch.manual_seed(columns * 100 + out)
    linear = nn.Linear(columns, out, dtype=torch.float64)
    return SparseLinear.from_dense(linear, pattern or NMPattern(), **options)  # type: ignore[arg-type]


def error_bound(layer: SparseLinear, x: Tensor, step: Tensor) -> Tensor:
    """(rows, out): sum over k of |w| s_x/2 + |x| s_w/2 + s_x s_w/4 for the kept weights, without clipping.

    ``step`` is () or (rows, 1).
    """
    weight = layer.weight.detach().double()
    scale = quantise_weight(layer.values.detach()).scale.double()
    kept = (weight != 0).double()
    half = step.double() / 2
    of_input = half * weight.abs().sum(dim=1)
    of_weight = x.double().abs() @ (kept * scale[:, None] / 2).T
    return of_input + of_weight + half * scale / 2 * kept.sum(dim=1)


@settings(max_examples=60)
@given(
    st.integers(0, 6),
    st.integers(0, 9),
    st.integers(2, 8),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
    st.integers(0, 2**31),
)
def test_rounding_of_weights(out: int, columns: int, bits: int, dtype: torch.dtype, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(out, columns, generator=generator) * 10 ** torch.randint(
        -3, 3, (out, 1), generator=generator
    )
    weight = weight.masked_fill(torch.rand(out, columns, generator=generator) < 0.4, 0).to(dtype)
    values, scale = quantise_weight(weight, bits)
    levels = 2 ** (bits - 1) - 1
    assert (values.dtype, scale.dtype, scale.shape) == (torch.int8, torch.float32, (out,))
    assert int(values.abs().amax() if values.numel() else 0) <= levels
    assert (values[weight == 0] == 0).all()
    error = (values.double() * scale.double()[:, None] - weight.double()).abs()
    assert (error <= scale.double()[:, None] * (0.5 + 1e-5)).all()
    for row in range(out):
        if not columns or not weight[row].any():
            assert scale[row] == 1
        else:
            assert int(values[row].abs().amax()) == levels
            assert scale[row].item() == pytest.approx(float(weight[row].abs().amax()) / levels)


def test_tiny_weights_do_not_divide_by_zero() -> None:
    values, scale = quantise_weight(torch.tensor([[1e-45, 0.0], [2.0, -1.0]], dtype=torch.float64))
    assert values.tolist() == [[0, 0], [127, -64]]
    assert scale.tolist() == [1.0, pytest.approx(2 / 127)]


@settings(max_examples=40)
@given(
    st.sampled_from([NMPattern(2, 4), NMPattern(1, 4), NMPattern(2, 8)]),
    st.integers(1, 6),
    st.integers(1, 9),
    st.integers(0, 5),
    st.booleans(),
)
def test_error_stays_below_the_bound_of_rounding(
    pattern: NMPattern, groups: int, out: int, rows: int, fixed: bool
) -> None:
    layer = sparse_layer(groups * pattern.m, out, pattern)
    x = torch.randn(rows, layer.in_features, generator=torch.Generator().manual_seed(3))
    if fixed:
        step = (x.abs().amax() if rows else torch.tensor(1.0)) / 127
    else:
        step = x.abs().amax(dim=1, keepdim=True) / 127
    quantised = layer.quantise(step if fixed else None)
    y = quantised(x)
    assert y.dtype == torch.float32
    assert y.shape == (rows, out)
    exact = layer(x.double()).detach()
    assert ((y.double() - exact).abs() <= error_bound(layer, x, step) + 1e-5 * (1 + exact.abs())).all()
    # Rounded operands are multiplied exactly.
    integers = quantise_input(x, step if fixed else None)[0].double() @ quantised.packed.to_dense().double().T
    expected = integers * quantised.weight_scale.double() * step.double() + layer.bias
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_result_has_the_type_of_the_input(dtype: torch.dtype) -> None:
    layer = sparse_layer(activation="relu")
    quantised = layer.quantise()
    x = torch.randn(2, 3, 32).to(dtype)
    y = quantised(x)
    assert (y.dtype, y.shape) == (dtype, (2, 3, 24))
    assert (y >= 0).all()
    assert (y.double() - layer(x.double())).abs().max() < 0.05
    assert not y.requires_grad
    assert quantised(x[0, 0]).shape == (24,)
    torch.testing.assert_close(quantised(x.transpose(0, 1)).transpose(0, 1), y)


def test_scale_of_each_row_and_fixed_scale() -> None:
    layer = sparse_layer()
    x = torch.randn(5, 32)
    dynamic, fixed = layer.quantise(), layer.quantise(activation_scale=float(x.abs().amax()) / 127)
    largest = int(x.abs().amax(dim=1).argmax())
    torch.testing.assert_close(dynamic(x)[largest], fixed(x)[largest])
    # A row does not depend on others.
    together = dynamic(torch.cat([x, 1000 * x]))
    torch.testing.assert_close(together[:5], dynamic(x))
    torch.testing.assert_close(
        (dynamic(100 * x) - layer.bias) / 100, dynamic(x) - layer.bias, rtol=1e-4, atol=1e-4
    )
    # A given scale clips what lies beyond.
    clipped = x.clamp(-x.abs().amax(), x.abs().amax()) * 0 + x.abs().amax()
    torch.testing.assert_close(fixed(clipped * 100), fixed(clipped))
    zeros = dynamic(torch.zeros(2, 32))
    torch.testing.assert_close(zeros, layer.bias.detach().float().expand(2, 24))
    assert dynamic(torch.zeros(0, 32)).shape == (0, 24)
    spoiled = x.clone()
    spoiled[1, 2] = float("nan")
    assert dynamic(spoiled).isnan().all(dim=1).tolist() == [False, True, False, False, False]
    torch.testing.assert_close(dynamic(spoiled)[2:], dynamic(x)[2:])


def test_large_sums_of_half_precision_are_finite() -> None:
    linear = nn.Linear(4096, 4, bias=False)
    nn.init.constant_(linear.weight, 1.0)
    x = torch.full((2, 4096), 1e-3)
    y = SparseLinear.from_dense(linear).quantise()(x.half())
    torch.testing.assert_close(y, torch.full((2, 4), 2.048).half(), rtol=1e-2, atol=0)


def test_scale_from_calibration() -> None:
    linear = nn.Linear(32, 24)
    batches = [torch.randn(4, 32), 3 * torch.randn(4, 32)]
    statistics = collect_inputs(linear, batches, layers=[""])[""]
    scale = activation_scale(statistics)
    largest = max(float(batch.abs().amax()) for batch in batches)
    assert (scale.shape, scale.dtype) == ((), torch.float32)
    assert float(scale) == pytest.approx(largest / 127)
    layer = SparseLinear.from_dense(linear).quantise(statistics)
    assert torch.equal(layer.activation_scale, scale)
    assert repr(layer).endswith("activation_scale=given)")
    assert float(activation_scale(statistics.__class__(1, torch.zeros(1), torch.zeros(())))) == 1


def test_moving_casting_and_copying_keeps_the_integers() -> None:
    layer = sparse_layer(keep_dense=True).quantise(0.02)
    x = torch.randn(3, 32)
    expected = layer(x)
    scale = layer.weight_scale.clone()
    for moved in (
        copy.deepcopy(layer).half(),
        copy.deepcopy(layer).double(),
        copy.deepcopy(layer).bfloat16(),
    ):
        assert moved.values.dtype == torch.int8
        assert torch.equal(moved.weight_scale, scale)
        assert torch.equal(moved.activation_scale, layer.activation_scale)
        torch.testing.assert_close(moved(x), expected, rtol=1e-2, atol=1e-2)
    assert layer.half().weight.dtype == torch.float16
    restored = pickle.loads(pickle.dumps(layer))
    assert torch.equal(restored(x), layer(x))
    assert list(layer.parameters()) == [layer.bias]


def test_state_dict_and_dense() -> None:
    source = sparse_layer(activation="gelu")
    layer, other = source.quantise(0.05), sparse_layer(activation="gelu").quantise(0.7)
    with torch.no_grad():
        other.values.zero_()
    x = torch.randn(3, 32)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))
    dense = layer.to_dense()
    assert dense.weight.dtype == torch.float64
    bound = layer.weight_scale.double()[:, None] / 2 * (1 + 1e-5)
    assert ((dense.weight - source.weight).abs() <= bound).all()
    assert (dense.weight[source.weight == 0] == 0).all()
    assert not dense.weight.requires_grad
    with pytest.raises(
        ValueError, match=r"stored values are torch\.float64 but those of the layer torch\.int8"
    ):
        layer.load_state_dict(source.state_dict())
    with pytest.raises(ValueError, match="cannot load the dense weight weight"):
        layer.load_state_dict(source.to_dense().state_dict())


def test_compiled_layer_rounds_the_same() -> None:
    torch._dynamo.reset()
    x = torch.randn(3, 32)
    for layer in (sparse_layer().quantise(), sparse_layer(keep_dense=True).quantise(0.02)):
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x), layer(x))


def test_bad_arguments_are_named() -> None:
    with pytest.raises(TypeError, match=r"floating point, got torch\.int8"):
        quantise_weight(torch.ones(2, 2, dtype=torch.int8))
    with pytest.raises(ValueError, match=r"shape \(out, columns\), got \(3,\)"):
        quantise_weight(torch.ones(3))
    with pytest.raises(ValueError, match="bits must be 2 to 8, got 1"):
        quantise_weight(torch.ones(2, 2), bits=1)
    with pytest.raises(ValueError, match="row 1 holds NaN or infinite"):
        quantise_weight(torch.tensor([[1.0], [float("inf")]]))
    layer = sparse_layer()
    for scale in (0.0, -1.0, float("nan"), torch.ones(2)):
        with pytest.raises(ValueError, match="one positive number"):
            layer.quantise(scale)
    with pytest.raises(TypeError, match="holds int8 values"):
        SparseLinearInt8(layer.packed, torch.ones(24))
    with pytest.raises(ValueError, match=r"weight_scale must have shape \(24,\)"):
        SparseLinearInt8(layer.packed.to(torch.int8), torch.ones(2))
    with pytest.raises(TypeError, match="x must be floating point"):
        layer.quantise()(torch.ones(2, 32, dtype=torch.int8))


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 33, 256])
def test_layer_on_cuda(cuda: torch.device, rows: int) -> None:
    layer = sparse_layer(256, 128).float()
    x = torch.randn(rows, 256, generator=torch.Generator().manual_seed(0))
    on_cpu, on_cuda = layer.quantise(0.03), layer.quantise(0.03).to(cuda)
    for dtype in (torch.float16, torch.bfloat16):
        found = on_cuda(x.to(cuda, dtype)).cpu()
        torch.testing.assert_close(found, on_cpu(x.to(dtype)), rtol=2e-2, atol=2e-2)
