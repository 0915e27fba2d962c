"""Layers whose product is launched without the library have the bits of the library's call."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from sparse_core.nm import SparseLinear, prune
from sparse_core.nm.linear import LinearImpl, nm_linear
from sparse_core.nm.linear.common import has_sparse_cores
from sparse_core.nm.linear.launch_plans import Again, Quick

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


def products(sparse: SparseLinear) -> list[Again]:
    plans = sparse.packed.plans["cuda"]
    return [call for call in plans.calls.values() if isinstance(call, Again)]  # type: ignore[attr-defined]


def library(sparse: SparseLinear, x: Tensor) -> Tensor:
    """What the call gives that was recorded."""
    (product,) = products(sparse)
    made = product.call(x.reshape(-1, COLUMNS), sparse.bias, sparse._current().dense, None)
    return made.view(*x.shape[:-1], OUT)


def quick(sparse: SparseLinear) -> list[object]:
    return [] if sparse._ready is None else list(sparse._ready.quick.values())


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
    assert [one.recorded for one in products(sparse)] in ([True], [False])


def test_every_way_is_recorded() -> None:
    """Of 13 rows cuSPARSELt is given a padded copy, and memory for it that nobody knows."""
    expected = (("cuda", 16, True), ("dense", 256, True), ("vendor", 256, True), ("vendor", 13, False))
    for impl, rows, recorded in expected:
        sparse = layer(impl)  # type: ignore[arg-type]
        for _ in range(4):
            sparse(given(rows))
        assert [one.recorded for one in products(sparse)] == [recorded], impl


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
    assert product.recorded is (activation != "gelu")
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


def test_a_layer_becomes_quick_and_sees_changes() -> None:
    sparse = layer()
    x = given(4, 64)
    for _ in range(6):
        before = sparse(x)
    assert [type(one) for one in quick(sparse)] == [Quick]
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


def test_what_does_not_fit_goes_the_whole_way() -> None:
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


def test_settings_of_cublas_are_asked() -> None:
    sparse = layer("dense")
    x = given()
    for _ in range(4):
        before = sparse(x)
    backend = torch.backends.cuda.matmul
    allowed = backend.allow_fp16_reduced_precision_reduction
    backend.allow_fp16_reduced_precision_reduction = not allowed
    try:
        assert torch.equal(sparse(x), library(sparse, x))
    finally:
        backend.allow_fp16_reduced_precision_reduction = allowed
    assert torch.equal(sparse(x), before)
