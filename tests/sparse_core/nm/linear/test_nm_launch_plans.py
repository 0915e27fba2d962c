"""Layers with a launch plan have the bits of the ordinary way, or take the ordinary way."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from sparse_core.kernels.launch_plan import SWITCH
from sparse_core.nm import SparseLinear, prune
from sparse_core.nm.linear import LinearImpl, nm_linear
from sparse_core.nm.linear.common import has_sparse_cores
from sparse_core.nm.linear.launch_plans import LayerPlan, PlannedCall

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]
COLUMNS, OUT = 1024, 768


def layer(
    impl: LinearImpl = "auto", *, bias: bool = True, dtype: torch.dtype = torch.float16
) -> SparseLinear:
    if not has_sparse_cores(0):
        pytest.skip("needs sparse tensor cores")
    torch.manual_seed(1)
    dense = nn.Linear(COLUMNS, OUT, bias=bias, device="cuda", dtype=dtype).requires_grad_(False)
    prune(dense, 2, 4)
    return SparseLinear.from_dense(dense, impl=impl)


def given(*shape: int, dtype: torch.dtype = torch.float16) -> Tensor:
    return torch.randn(*(shape or (256,)), COLUMNS, device="cuda", dtype=dtype)


def products(sparse: SparseLinear) -> list[PlannedCall]:
    plans = sparse.packed.plans["cuda"]
    return [call for call in plans.calls.values() if isinstance(call, PlannedCall)]  # type: ignore[attr-defined]


def library(sparse: SparseLinear, x: Tensor) -> Tensor:
    """The result of the call behind the plan."""
    (product,) = products(sparse)
    made = product.call(x.reshape(-1, COLUMNS), sparse.bias, sparse._current().dense, None)
    return made.view(*x.shape[:-1], OUT)


def layer_plans(sparse: SparseLinear) -> list[object]:
    return [] if sparse._cache is None else list(sparse._cache.layer_plans.values())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("impl", "rows"), [("vendor", 256), ("cuda", 16), ("dense", 256)])
def test_each_way_keeps_its_bits(impl: LinearImpl, rows: int, bias: bool, dtype: torch.dtype) -> None:
    sparse = layer(impl, bias=bias, dtype=dtype)
    made = []
    for _ in range(6):
        x = given(rows, dtype=dtype)
        made.append((sparse(x), library(sparse, x)))
    assert all(torch.equal(ours, theirs) for ours, theirs in made)
    assert [one.plan is not None for one in products(sparse)] == [impl != "dense"]


def test_which_ways_have_a_plan() -> None:
    """Of 13 rows cuSPARSELt is given a padded copy; the dense product is a call of torch."""
    expected = (("cuda", 16, True), ("dense", 256, False), ("vendor", 256, True), ("vendor", 13, False))
    for impl, rows, planned in expected:
        sparse = layer(impl)  # type: ignore[arg-type]
        for _ in range(4):
            sparse(given(rows))
        assert [one.plan is not None for one in products(sparse)] == [planned], impl


@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize("rows", [64, 260, 16384])
def test_products_of_cusparselt_on_several_streams(rows: int, activation: str | None) -> None:
    """Of 16,384 rows it sets a counter to zero before its kernel; 260 leave four to the kernel for few."""
    sparse = layer("vendor")
    sparse.activation = activation  # type: ignore[assignment]
    inputs = [given(rows) for _ in range(4)]
    for _ in range(2):
        expected = [sparse(x) for x in inputs]
    (product,) = products(sparse)
    assert (product.plan is not None) is (activation != "gelu")
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    made: list[list[Tensor]] = [[] for _ in inputs]
    for _ in range(10):
        for stream, x, several in zip(streams, inputs, made, strict=True):
            with torch.cuda.stream(stream):
                several.append(sparse(x))
    torch.cuda.synchronize()
    for one, several in zip(expected, made, strict=True):
        assert all(torch.equal(one, other) for other in several)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = sparse(inputs[0])
    for _ in range(3):
        captured.fill_(float("nan"))
        graph.replay()
        assert torch.equal(captured, expected[0])


def test_a_layer_has_a_plan_and_sees_changes() -> None:
    sparse = layer()
    x = given(4, 64)
    for _ in range(6):
        before = sparse(x)
    assert [type(one) for one in layer_plans(sparse)] == [LayerPlan]
    other = given(4, 64)
    assert torch.equal(sparse(other), library(sparse, other))
    assert sparse(other).shape == (4, 64, OUT)
    with torch.no_grad():
        sparse.values.mul_(2)
        sparse.bias.mul_(2)  # type: ignore[union-attr]
    assert torch.equal(sparse(x), library(sparse, x))
    assert torch.allclose(sparse(x), 2 * before, atol=1e-3, rtol=1e-3)
    with torch.no_grad():
        sparse.bias.copy_(-sparse.bias)  # type: ignore[union-attr, operator]
    assert torch.equal(sparse(x), library(sparse, x))
    sparse.bias = None
    assert torch.allclose(sparse(x), x @ sparse.weight.T, atol=0.05, rtol=0.01)


def test_what_does_not_fit_takes_the_ordinary_way() -> None:
    sparse = layer()
    for _ in range(6):
        sparse(given(256))
    shifted = torch.randn(256 * COLUMNS + 8, device="cuda", dtype=torch.float16)[8:].view(256, COLUMNS)
    strided = torch.randn(COLUMNS, 256, device="cuda", dtype=torch.float16).T
    followed = given(256).requires_grad_()
    weight = sparse.weight.double()
    for x in (shifted, strided, followed):
        expected = x.detach().double() @ weight.T + sparse.bias.double()  # type: ignore[union-attr]
        assert (sparse(x).detach() - expected).abs().max() < 0.02 * expected.abs().max()
    sparse(followed).sum().backward()
    assert followed.grad is not None
    with pytest.raises(TypeError, match="convert one of them"):
        sparse(given(256).float())
    with pytest.raises(ValueError, match="features"):
        sparse(given(256)[:, :512])
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert sparse(given(256)).dtype == torch.bfloat16


def test_options_may_be_changed() -> None:
    sparse = layer()
    x = given()
    for _ in range(6):
        before = sparse(x)
    sparse.activation = "relu"
    assert torch.equal(sparse(x), before.relu())
    sparse.activation = None
    sparse.impl = "reference"
    reference = sparse(x)
    sparse.impl = "auto"
    assert torch.equal(sparse(x), before)
    assert torch.allclose(reference, before, atol=0.02, rtol=0.01)


def test_training_is_followed() -> None:
    sparse = layer()
    x = given(256)
    for _ in range(6):
        sparse(x)
    sparse.requires_grad_(True)
    y = sparse(x)
    assert y.requires_grad
    y.sum().backward()
    assert sparse.values.grad is not None
    with torch.no_grad():
        assert not sparse(x).requires_grad


def test_biases_are_exchanged() -> None:
    sparse = layer("vendor")
    packed, x = sparse.packed, given()
    biases = [torch.randn(OUT, device="cuda", dtype=torch.float16) for _ in range(3)]
    dense = packed.to_dense()
    made = [[nm_linear(x, packed, bias, dense=dense) for bias in biases] for _ in range(4)]
    for before, after in pairwise(made):
        assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert not torch.equal(made[0][0], made[0][1])


def test_streams_graphs_and_threads() -> None:
    sparse = layer()
    x = given(256)
    for _ in range(6):
        expected = sparse(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(10_000_000)
        there = sparse(x)
    side.synchronize()
    assert torch.equal(there, expected)
    found: list[Tensor] = []
    thread = threading.Thread(target=lambda: found.append(sparse(x)))
    thread.start()
    thread.join()
    assert torch.equal(found[0], expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = sparse(x)
    x.copy_(given(256))
    graph.replay()
    assert torch.equal(captured, sparse(x))


@pytest.mark.parametrize(("impl", "rows"), [("vendor", 256), ("cuda", 16), ("dense", 256), ("auto", 256)])
def test_the_switch_changes_no_bit(impl: LinearImpl, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, found = given(rows), {}
    for value in ("0", "1"):
        monkeypatch.setenv(SWITCH, value)
        sparse = layer(impl)
        found[value] = [sparse(x) for _ in range(6)]
        if value == "0":
            assert products(sparse) == []
            assert layer_plans(sparse) == []
    assert all(torch.equal(one, found["0"][0]) for several in found.values() for one in several)
