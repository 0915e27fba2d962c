"""The product on a CPU against float64: types, shapes, epilogues, and what it refuses."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from sparse_core.errors import ImplementationError
from sparse_core.nm.linear import UnpackedWarning, api, nm_linear, product
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.pattern import NMPattern

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class Case(NamedTuple):
    """A product of small integers, so that a wrong position shows in every type."""

    x: Tensor
    packed: PackedNM
    bias: Tensor | None
    activation: str | None

    def exact(self) -> tuple[Tensor, Tensor]:
        """The result in float64, and the sum of the magnitudes that were added."""
        weight = self.packed.to_dense().double()
        x = self.x.double()
        y, size = x @ weight.T, x.abs() @ weight.abs().T
        if self.bias is not None:
            y, size = y + self.bias.double(), size + self.bias.double().abs()
        if self.activation == "relu":
            y = y.relu()
        return nn.functional.gelu(y) if self.activation == "gelu" else y, size


def random_packed(
    out: int, groups: int, pattern: NMPattern, dtype: torch.dtype, generator: torch.Generator
) -> PackedNM:
    order = torch.rand(out, groups, pattern.m, generator=generator).argsort(dim=2)
    weight = torch.randint(-4, 5, (out, groups * pattern.m), generator=generator).to(dtype)
    return PackedNM.from_dense(weight, pattern, (order < pattern.n).reshape(weight.shape))


def random_input(shape: tuple[int, ...], layout: str, dtype: torch.dtype, seed: torch.Generator) -> Tensor:
    """(…) with the strides of a ``layout``."""
    if layout == "transposed" and len(shape) > 1:
        return torch.randint(-3, 4, shape[::-1], generator=seed).to(dtype).permute(*range(len(shape))[::-1])
    if layout == "every other":
        return torch.randint(-3, 4, (*shape[:-1], 2 * shape[-1]), generator=seed).to(dtype)[..., ::2]
    if layout == "expanded" and len(shape) > 1 and shape[0]:
        return torch.randint(-3, 4, (1, *shape[1:]), generator=seed).to(dtype).expand(shape)
    return torch.randint(-3, 4, shape, generator=seed).to(dtype)


@st.composite
def products(draw: st.DrawFn, dtypes: tuple[torch.dtype, ...] = FLOATS) -> Case:
    m = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 32]))
    pattern = NMPattern(draw(st.integers(1, m)), m)
    dtype = draw(st.sampled_from(dtypes))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    packed = random_packed(draw(st.integers(0, 6)), draw(st.integers(0, 3)), pattern, dtype, generator)
    leading = draw(st.lists(st.integers(0, 4), max_size=3))
    layout = draw(st.sampled_from(["plain", "transposed", "every other", "expanded"]))
    x = random_input((*leading, packed.shape[1]), layout, dtype, generator)
    bias = torch.randint(-9, 10, (packed.shape[0],), generator=generator).to(dtype)
    return Case(
        x, packed, bias if draw(st.booleans()) else None, draw(st.sampled_from([None, "relu", "gelu"]))
    )


@settings(max_examples=200)
@given(case=products(), impl=st.sampled_from(["auto", "reference", "dense"]))
def test_any_product_is_the_dense_one(case: Case, impl: str) -> None:
    y = nm_linear(case.x, case.packed, case.bias, activation=case.activation, impl=impl)
    expected, size = case.exact()
    assert y.dtype == case.x.dtype
    assert y.shape == (*case.x.shape[:-1], case.packed.shape[0])
    eps = torch.finfo(y.dtype).eps
    allowed = 1.2 * eps * size + (eps * (1 + size) if case.activation == "gelu" else 0)
    assert bool(((y.double() - expected).abs() <= allowed).all())


@settings(max_examples=30)
@given(case=products())
def test_a_dense_copy_gives_the_same(case: Case) -> None:
    y = nm_linear(case.x, case.packed, case.bias, activation=case.activation)
    dense = case.packed.to_dense()
    assert torch.equal(y, nm_linear(case.x, case.packed, case.bias, activation=case.activation, dense=dense))


def test_the_dense_copy_is_what_is_multiplied() -> None:
    packed = PackedNM.from_dense(torch.eye(4))
    y = nm_linear(torch.ones(4), packed, dense=3 * torch.eye(4), impl="reference")
    assert y.tolist() == [3] * 4


def test_zero_columns_leave_the_bias() -> None:
    empty = PackedNM.from_dense(torch.zeros(3, 0))
    bias = torch.tensor([1.0, -2, 3])
    for impl in ("reference", "dense"):
        y = nm_linear(torch.zeros(2, 0), empty, bias, activation="relu", impl=impl)
        assert y.tolist() == [[1, 0, 3]] * 2


def test_nan_and_infinity_pass_through() -> None:
    packed = PackedNM.from_dense(torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 2]]))
    x = torch.tensor([[math.inf, 1, 1, 1], [1, 1, 1, math.nan]])
    y = nm_linear(x, packed)
    assert y[0, 0] == math.inf
    assert bool(y[1, 1].isnan())
    # As in the dense product, zeros are multiplied too.
    assert bool(y[0, 1].isnan())


# int8


@settings(max_examples=60)
@given(
    rows=st.lists(st.integers(0, 5), max_size=3),
    groups=st.integers(0, 40),
    impl=st.sampled_from(["auto", "reference", "dense"]),
    seed=st.integers(0, 2**31),
)
def test_int8_sums_are_exact(rows: list[int], groups: int, impl: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randint(-128, 128, (5, 4 * groups), generator=generator, dtype=torch.int8)
    mask = (torch.rand(5, groups, 4, generator=generator).argsort(dim=2) < 2).reshape(weight.shape)
    packed = PackedNM.from_dense(weight, mask=mask)
    x = torch.randint(-128, 128, (*rows, 4 * groups), generator=generator, dtype=torch.int8)
    y = nm_linear(x, packed, impl=impl)
    assert y.dtype == torch.int32
    assert torch.equal(y.long(), x.long() @ (weight * mask).long().T)


def test_int8_sums_beyond_what_float32_holds() -> None:
    packed = PackedNM.from_dense(torch.full((1, 40_000), 127, dtype=torch.int8), NMPattern(1, 1))
    x = torch.full((1, 40_000), 127, dtype=torch.int8)
    x[0, 0] = 126
    assert nm_linear(x, packed).item() == 127 * 127 * 40_000 - 127


@pytest.mark.parametrize(
    ("out_dtype", "scaled"),
    [(None, True), *[(dtype, scaled) for dtype in FLOATS[1:] for scaled in (True, False)]],
)
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_int8_is_dequantised(out_dtype: torch.dtype | None, scaled: bool, activation: str | None) -> None:
    generator = torch.Generator().manual_seed(0)
    packed = random_packed(7, 8, NMPattern(2, 4), torch.int8, generator)
    x = torch.randint(-127, 128, (2, 3, 32), generator=generator, dtype=torch.int8)
    scale = torch.rand(7, generator=generator) * 1e-2 if scaled else None
    bias = torch.randn(7, generator=generator)
    y = nm_linear(x, packed, bias, activation=activation, scale=scale, out_dtype=out_dtype)
    assert y.dtype == (out_dtype or torch.float16)
    expected = x.double() @ packed.to_dense().double().T
    expected = (expected if scale is None else expected * scale.double()) + bias.double()
    if activation == "relu":
        expected = expected.relu()
    elif activation == "gelu":
        expected = nn.functional.gelu(expected)
    eps = torch.finfo(y.dtype).eps
    assert bool(((y.double() - expected).abs() <= eps * expected.abs() + 1e-5).all())


def test_int8_bias_of_any_floating_type_and_without_gradient() -> None:
    packed = random_packed(4, 2, NMPattern(2, 4), torch.int8, torch.Generator().manual_seed(0))
    x = torch.ones(3, 8, dtype=torch.int8)
    bias = nn.Parameter(torch.tensor([0.5, 1.5, -2, 0]))
    scale = torch.ones(4)
    y = nm_linear(x, packed, bias, scale=scale, out_dtype=torch.float32)
    assert not y.requires_grad
    assert torch.equal(y, x.float() @ packed.to_dense().float().T + bias.detach())
    assert torch.equal(y, nm_linear(x, packed, bias.bfloat16(), scale=scale, out_dtype=torch.float32))


# What is refused


def _arguments() -> dict[str, Any]:
    return {"x": torch.ones(2, 8), "weight": PackedNM.from_dense(torch.eye(8)[:3].contiguous())}


def _int8() -> dict[str, Any]:
    weight = torch.eye(8)[:3].to(torch.int8)
    return {"x": torch.ones(2, 8, dtype=torch.int8), "weight": PackedNM.from_dense(weight)}


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"x": torch.ones(2, 7)}, ValueError, r"8 features in its last dimension, got shape \(2, 7\)"),
        ({"x": torch.ones(())}, ValueError, r"8 features in its last dimension, got shape \(\)"),
        ({"x": torch.ones(2, 8, device="meta")}, ValueError, "x is on meta but the weight is on cpu"),
        ({"x": torch.ones(2, 8).half()}, TypeError, r"x is torch.float16 but the weight is torch.float32"),
        ({"bias": torch.ones(8)}, ValueError, r"bias must have shape \(3,\), got \(8,\)"),
        ({"bias": torch.ones(3, 1)}, ValueError, r"bias must have shape \(3,\), got \(3, 1\)"),
        ({"bias": torch.ones(3, device="meta")}, ValueError, "bias is on meta but x is on cpu"),
        ({"bias": torch.ones(3).double()}, TypeError, "bias is torch.float64 but x is torch.float32"),
        ({"activation": "tanh"}, ValueError, "None or one of relu, gelu, got 'tanh'"),
        ({"scale": torch.ones(3)}, ValueError, "scale needs an int8 weight"),
        ({"out_dtype": torch.float16}, ValueError, "out_dtype=torch.float16 needs an int8 weight"),
        ({"impl": "fast"}, ValueError, "auto, vendor, cuda, dense, cpu, reference; got 'fast'"),
        ({"impl": "triton"}, ImplementationError, "nm_linear has no triton implementation"),
        ({"dense": torch.ones(8, 3)}, ValueError, r"weight's shape \(3, 8\), got \(8, 3\)"),
        ({"dense": torch.ones(3, 8).half()}, TypeError, "dense is torch.float16 but the weight is"),
        ({"dense": torch.ones(3, 8, device="meta")}, ValueError, "dense is on meta"),
    ],
)
def test_operands_that_do_not_fit(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        nm_linear(**(_arguments() | changed))


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"scale": torch.ones(2)}, ValueError, r"float32 of shape \(3,\), got torch.float32 \(2,\)"),
        ({"scale": torch.ones(3).half()}, ValueError, r"float32 of shape \(3,\), got torch.float16 \(3,\)"),
        ({"scale": torch.ones(3, device="meta")}, ValueError, "scale is on meta but x is on cpu"),
        ({"out_dtype": torch.float64}, TypeError, "must be torch.int32, .* got torch.float64"),
        ({"out_dtype": torch.int32, "scale": torch.ones(3)}, ValueError, "takes no scale"),
        ({"bias": torch.ones(3)}, ValueError, "takes no scale"),
        ({"activation": "relu"}, ValueError, "takes no scale"),
        ({"bias": torch.ones(3).int(), "scale": torch.ones(3)}, TypeError, "bias is torch.int32"),
        ({"x": torch.ones(2, 8)}, TypeError, "x is torch.float32 but the weight is torch.int8"),
    ],
)
def test_int8_operands_that_do_not_fit(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        nm_linear(**(_int8() | changed))


def test_the_type_of_the_input_may_be_named() -> None:
    arguments = _arguments()
    assert nm_linear(**arguments, out_dtype=torch.float32).dtype == torch.float32


def test_implementations_by_name() -> None:
    for name in ("auto", "reference", "dense", "cuda", "vendor"):
        api.NM_LINEAR.check(name)
    for impl in ("cuda", "vendor"):
        with pytest.raises(ImplementationError, match=rf"impl='{impl}' needs .* this one is 2:4, .* on cpu"):
            nm_linear(**_arguments(), impl=impl)
        # Also without any work to do.
        with pytest.raises(ImplementationError, match="NVIDIA GPU of compute capability"):
            nm_linear(**(_arguments() | {"x": torch.ones(0, 8)}), impl=impl)


# The warning


@pytest.fixture
def _unsaid() -> Iterator[None]:
    product._warn_once.cache_clear()
    yield
    product._warn_once.cache_clear()


@pytest.mark.usefixtures("_unsaid")
def test_unpacking_warns_once_per_process() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for impl in ("reference", "dense"):
            nm_linear(**_arguments(), impl=impl)
        assert said == []
        nm_linear(**_arguments())
        nm_linear(**_arguments())
        nm_linear(**_int8())
    assert [entry.category for entry in said] == [UnpackedWarning]
    assert "saves memory but no time" in str(said[0].message)
    assert said[0].filename == __file__
