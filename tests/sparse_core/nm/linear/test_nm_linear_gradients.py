"""Gradients of the product, eager and compiled, on a CPU."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from sparse_core.nm.linear import nm_linear
from sparse_core.nm.linear.compiled import nm_linear_op
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.pattern import TWO_FOUR, NMPattern

ACTIVATIONS = [None, "relu", "gelu"]


def packed_weight(
    out: int, groups: int, pattern: NMPattern = TWO_FOUR, dtype: torch.dtype = torch.float64
) -> PackedNM:
    generator = torch.Generator().manual_seed(out)
    weight = torch.randn(out, groups * pattern.m, generator=generator, dtype=torch.float64).to(dtype)
    order = torch.rand(out, groups, pattern.m, generator=generator).argsort(dim=2)
    return PackedNM.from_dense(weight, pattern, (order < pattern.n).reshape(weight.shape))


def operands(packed: PackedNM, *leading: int) -> tuple[Tensor, Tensor, Tensor]:
    """Input, values and bias that want gradients."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(*leading, packed.shape[1], generator=generator, dtype=torch.float64).to(packed.dtype)
    bias = torch.randn(packed.shape[0], generator=generator, dtype=torch.float64).to(packed.dtype)
    return x.requires_grad_(), packed.values.clone().requires_grad_(), bias.requires_grad_()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("pattern", [NMPattern(2, 4), NMPattern(1, 3), NMPattern(5, 8)])
@pytest.mark.parametrize("leading", [(), (3,), (2, 1, 3)])
def test_gradcheck(activation: str | None, pattern: NMPattern, leading: tuple[int, ...]) -> None:
    packed = packed_weight(3, 2, pattern)

    def product(x: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        return nm_linear(x, packed.with_values(values), bias, activation=activation)

    assert torch.autograd.gradcheck(product, operands(packed, *leading))


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 1), (1, 2)])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_only_what_is_wanted(wanted: tuple[int, ...], activation: str | None) -> None:
    packed = packed_weight(3, 2)
    everything = operands(packed, 4)
    y = nm_linear(everything[0], packed.with_values(everything[1]), everything[2], activation=activation)
    upstream = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)
    all_gradients = torch.autograd.grad(y, everything, upstream)
    some = [part.detach().requires_grad_(number in wanted) for number, part in enumerate(everything)]
    y = nm_linear(some[0], packed.with_values(some[1]), some[2], activation=activation)
    found = torch.autograd.grad(y, [some[number] for number in wanted], upstream)
    for number, gradient in zip(wanted, found, strict=True):
        assert torch.equal(gradient, all_gradients[number])


def test_relu_passes_gradients_as_torch_does() -> None:
    packed = PackedNM.from_dense(torch.eye(4))
    x = torch.tensor([[-1.0, 0, 1, math.nan]], requires_grad=True)
    upstream = torch.tensor([[math.inf, math.inf, 2, 3]])
    (ours,) = torch.autograd.grad(
        nm_linear(x, packed.with_values(packed.values), activation="relu", impl="reference"), x, upstream
    )
    plain = torch.nn.functional.linear(x, torch.eye(4)).relu()
    (theirs,) = torch.autograd.grad(plain, x, upstream)
    torch.testing.assert_close(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("leading", [(0,), (2, 0, 3)])
@pytest.mark.parametrize("shape", [(3, 2), (3, 0), (0, 2), (0, 0)])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_nothing_to_do(leading: tuple[int, ...], shape: tuple[int, int], activation: str | None) -> None:
    packed = packed_weight(*shape)
    x, values, bias = operands(packed, *leading)
    y = nm_linear(x, packed.with_values(values), bias, activation=activation)
    assert y.shape == (*leading, shape[0])
    gradients = torch.autograd.grad(y, (x, values, bias), torch.ones_like(y))
    for part, gradient in zip((x, values, bias), gradients, strict=True):
        assert gradient.shape == part.shape
        assert not gradient.any()


@pytest.mark.parametrize("shape", [(3, 0), (0, 2)])
def test_rows_of_an_empty_weight(shape: tuple[int, int]) -> None:
    packed = packed_weight(*shape)
    x, values, bias = operands(packed, 5)
    y = nm_linear(x, packed.with_values(values), bias)
    _, _, of_bias = torch.autograd.grad(y, (x, values, bias), torch.ones_like(y))
    assert of_bias.tolist() == [5.0] * shape[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_types_other_than_float64(dtype: torch.dtype) -> None:
    packed = packed_weight(6, 4, dtype=dtype)
    parts = operands(packed, 2, 5)
    found = torch.autograd.grad(nm_linear(parts[0], packed.with_values(parts[1]), parts[2]).sum(), parts)
    wide = [part.detach().double().requires_grad_() for part in parts]
    y = nm_linear(wide[0], packed.with_values(wide[1]), wide[2])
    for part, gradient, expected in zip(parts, found, torch.autograd.grad(y.sum(), wide), strict=True):
        assert gradient.dtype == dtype
        assert gradient.shape == part.shape
        allowed = 16 * torch.finfo(dtype).eps * float(expected.abs().max())
        assert float((gradient.double() - expected).abs().max()) <= allowed


def test_a_changed_operand_is_noticed() -> None:
    packed = packed_weight(3, 2)
    x, values, bias = operands(packed, 4)
    y = nm_linear(x, packed.with_values(values), bias)
    with torch.no_grad():
        values.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_autocast_changes_nothing(activation: str | None, compiled: bool) -> None:
    torch.compiler.reset()
    packed = packed_weight(6, 4, dtype=torch.float32)
    parts = operands(packed, 5)

    def product(x: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        return nm_linear(x, packed.with_values(values), bias, activation=activation)

    expected = product(*parts)
    wanted = torch.autograd.grad(expected.sum(), parts)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = (torch.compile(product, backend="aot_eager", fullgraph=True) if compiled else product)(*parts)
    assert torch.equal(y, expected)
    for gradient, theirs in zip(torch.autograd.grad(y.sum(), parts), wanted, strict=True):
        assert torch.equal(gradient, theirs)


# torch.compile


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("copied", [False, True])
def test_compiled_gradients_are_the_eager_ones(activation: str | None, copied: bool) -> None:
    torch.compiler.reset()
    packed = packed_weight(6, 3)
    dense = packed.to_dense() if copied else None

    def product(x: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        weight = PackedNM(values, packed.metadata, packed.shape, packed.pattern)
        return 2 * nm_linear(x + 1, weight, bias, activation=activation, dense=dense)

    compiled = torch.compile(product, backend="aot_eager", fullgraph=True)
    parts = operands(packed, 2, 5)
    eager, other = product(*parts), compiled(*parts)
    assert torch.equal(eager, other)
    upstream = torch.linspace(-1, 1, eager.numel(), dtype=eager.dtype).reshape(eager.shape)
    found = torch.autograd.grad(other, parts, upstream)
    for gradient, expected in zip(found, torch.autograd.grad(eager, parts, upstream), strict=True):
        torch.testing.assert_close(gradient, expected)


def test_compiled_int8() -> None:
    torch.compiler.reset()
    weight = torch.randint(-9, 10, (4, 8), dtype=torch.int8, generator=torch.Generator().manual_seed(0))
    packed = PackedNM.from_dense(weight, mask=torch.tensor([True, False, False, True]).repeat(4, 2))
    bias, scale = nn.Parameter(torch.randn(4)), torch.rand(4)

    def product(x: Tensor) -> Tensor:
        return nm_linear(x, packed, bias, scale=scale, activation="gelu", out_dtype=torch.bfloat16)

    x = torch.randint(-99, 100, (3, 8), dtype=torch.int8)
    compiled = torch.compile(product, backend="aot_eager", fullgraph=True)(x)
    assert torch.equal(compiled, product(x))
    assert not compiled.requires_grad


# Both warnings are torch's own, in opcheck.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize(
    ("dtype", "activation", "layout"),
    [
        (torch.float32, "", "rows"),
        (torch.float32, "relu", "vector"),
        (torch.float32, "gelu", "transposed"),
        (torch.bfloat16, "relu", "transposed"),
    ],
)
def test_the_operator_keeps_its_contract(dtype: torch.dtype, activation: str, layout: str) -> None:
    packed = packed_weight(6, 3, dtype=dtype)
    x, values, bias = operands(packed, *{"rows": (2, 5), "vector": (), "transposed": (2, 5)}[layout])
    if layout == "transposed":
        x = x.detach().transpose(0, 2).contiguous().transpose(0, 2).requires_grad_()
    torch.library.opcheck(
        nm_linear_op,
        (x, values, packed.metadata, bias, None, None, None, None, 2, 4, activation, dtype, "auto"),
    )
