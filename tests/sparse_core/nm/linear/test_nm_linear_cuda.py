"""The products on a GPU against float64, and the machinery around them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.sparse import (
    SparseSemiStructuredTensor,
    SparseSemiStructuredTensorCUSPARSELT,
    SparseSemiStructuredTensorCUTLASS,
)

from sparse_core.errors import ImplementationError
from sparse_core.nm.layers.sparse_linear import SparseLinear
from sparse_core.nm.linear import compiled as compiled_products
from sparse_core.nm.linear import decode_cuda, execution, measure, nm_linear, tuning
from sparse_core.nm.linear.choice import LinearChoice
from sparse_core.nm.linear.common import LinearEpilogue
from sparse_core.nm.linear.cusparselt import library
from sparse_core.nm.linear.cusparselt.compress import compress, compress_dense, layout_matches
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.packing.two_four.reference import transposable_mask
from sparse_core.nm.pattern import NMPattern
from sparse_core.nm.training import SparseTrainingLinear

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _own_table(tmp_path: Path):
    with tuning(folder=tmp_path):
        yield


def packed_weight(
    out: int, columns: int, dtype: torch.dtype, device: torch.device, seed: int = 0
) -> PackedNM:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.int8:
        weight = torch.randint(-127, 128, (out, columns), generator=generator, dtype=torch.int8)
    else:
        weight = torch.randn(out, columns, generator=generator).to(dtype)
    order = torch.rand(out, columns // 4, 4, generator=generator).argsort(dim=2)
    return PackedNM.from_dense(weight, mask=(order < 2).reshape(out, columns)).to(device)


def exact(x: Tensor, packed: PackedNM, bias: Tensor | None, activation: str | None) -> Tensor:
    y = x.double() @ packed.to_dense().double().T
    if bias is not None:
        y = y + bias.double()
    if activation == "relu":
        return y.relu()
    return nn.functional.gelu(y) if activation == "gelu" else y


def close(y: Tensor, expected: Tensor, dtype: torch.dtype, activation: str | None = None) -> None:
    step = {torch.bfloat16: 2**-8, torch.float16: 2**-11}[dtype]
    allowed = 1.1 * step * expected.abs() + 1e-5 * expected.abs().max() + 1e-6
    if activation == "gelu":  # the library rounds before it
        allowed = 2.5 * allowed + 8 * step
    assert bool(y.isfinite().all())
    assert bool(((y.double() - expected).abs() <= allowed).all())


def by_kernel(
    x: Tensor, packed: PackedNM, bias: Tensor | None, activation: str | None, variant: int
) -> Tensor:
    call = execution.make_call(
        LinearChoice("cuda", variant),
        packed,
        len(x),
        LinearEpilogue(activation, bias is not None, False, x.dtype),
    )
    return call(x, bias, None, None)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 16, 23, 24, 31, 32])
def test_kernel_for_few_rows(cuda: torch.device, dtype: torch.dtype, rows: int) -> None:
    packed = packed_weight(192, 384, dtype, cuda)
    x = torch.randn(rows, 384, device=cuda, dtype=dtype)
    bias = torch.randn(192, device=cuda, dtype=dtype)
    for number, variant in enumerate(decode_cuda.VARIANTS):
        if not decode_cuda.variant_fits(variant, 192, rows):
            continue
        for activation in (None, "relu", "gelu"):
            y = by_kernel(x, packed, bias, activation, number)
            close(y, exact(x, packed, bias, activation), dtype)
    y = by_kernel(x, packed, None, None, 0)
    close(y, exact(x, packed, None, None), dtype)


def test_kernel_for_few_rows_repeats_to_the_bit(cuda: torch.device) -> None:
    packed = packed_weight(1024, 4096, torch.bfloat16, cuda)
    x = torch.randn(16, 4096, device=cuda, dtype=torch.bfloat16)
    first = nm_linear(x, packed, impl="cuda")
    for _ in range(50):
        assert torch.equal(nm_linear(x, packed, impl="cuda"), first)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 8, 13, 64, 65, 200, 1000, 1001, 4096])
@pytest.mark.parametrize("shape", [(256, 512), (144, 272)])
def test_library_product(cuda: torch.device, dtype: torch.dtype, rows: int, shape: tuple[int, int]) -> None:
    packed = packed_weight(*shape, dtype, cuda)
    x = torch.randn(rows, shape[1], device=cuda, dtype=dtype)
    bias = torch.randn(shape[0], device=cuda, dtype=dtype)
    for activation in (None, "relu", "gelu"):
        y = nm_linear(x, packed, bias, activation=activation, impl="vendor")
        assert y.shape == (rows, shape[0])
        close(y, exact(x, packed, bias, activation), dtype, activation)
    # A plan with a bias must not leak it into the same product without one.
    close(nm_linear(x, packed, impl="vendor"), exact(x, packed, None, None), dtype)
    other = torch.randn(shape[0], device=cuda, dtype=dtype)
    close(nm_linear(x, packed, other, impl="vendor"), exact(x, packed, other, None), dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [32, 64, 512])
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch says that its own layout is a prototype
def test_against_torch_semi_structured(cuda: torch.device, dtype: torch.dtype, rows: int) -> None:
    packed = packed_weight(256, 512, dtype, cuda)
    x = torch.randn(rows, 512, device=cuda, dtype=dtype)
    bias = torch.randn(256, device=cuda, dtype=dtype)
    theirs = nn.functional.linear(x, torch.sparse.to_sparse_semi_structured(packed.to_dense()), bias)
    for impl in ("vendor", "auto"):
        ours = nm_linear(x, packed, bias, impl=impl)
        assert float((ours.double() - theirs.double()).abs().max()) <= 0.02 * float(theirs.abs().max())


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_int8_to_torch(cuda: torch.device) -> None:
    theirs = packed_weight(256, 512, torch.int8, cuda).to_torch()
    assert theirs.dtype == torch.int8
    with pytest.raises(TypeError, match="torch cannot read int8"):
        PackedNM.from_torch(theirs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backend", [SparseSemiStructuredTensorCUSPARSELT, SparseSemiStructuredTensorCUTLASS])
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch says that its own layout is a prototype
def test_to_torch_and_back(cuda: torch.device, dtype: torch.dtype, backend: Any) -> None:
    packed = packed_weight(256, 512, dtype, cuda)
    theirs = packed.to_torch()
    assert isinstance(theirs, SparseSemiStructuredTensor)
    for tensor in (theirs, backend.from_dense(packed.to_dense())):
        back = PackedNM.from_torch(tensor)
        assert back.dtype == dtype
        assert torch.equal(back.to_dense(), packed.to_dense())


@pytest.mark.parametrize("rows", [1, 16, 40, 333])
@pytest.mark.parametrize("impl", ["vendor", "auto", "dense"])
def test_int8(cuda: torch.device, rows: int, impl: str) -> None:
    packed = packed_weight(256, 512, torch.int8, cuda)
    x = torch.randint(-127, 128, (rows, 512), device=cuda, dtype=torch.int8)
    sums = x.double() @ packed.to_dense().double().T
    assert torch.equal(nm_linear(x, packed, impl=impl).double(), sums)
    scale = torch.rand(256, device=cuda) * 1e-3
    for dtype in (torch.float16, torch.bfloat16):
        bias = torch.randn(256, device=cuda)
        y = nm_linear(x, packed, bias, scale=scale, out_dtype=dtype, impl=impl)
        step = {torch.float16: 2**-10, torch.bfloat16: 2**-7}[dtype]
        expected = sums * scale.double() + bias.double()
        assert float((y.double() - expected).abs().max()) <= 2 * step * float(expected.abs().max())
    close(
        nm_linear(x, packed, scale=scale, activation="relu", out_dtype=torch.float16, impl=impl),
        (sums * scale.double()).relu(),
        torch.float16,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8])
def test_our_layout_is_that_of_the_library(cuda: torch.device, dtype: torch.dtype) -> None:
    assert layout_matches(cuda.index or 0, dtype)
    for shape in ((64, 64), (192, 320), (128, 1024)):
        packed = packed_weight(*shape, dtype, cuda)
        theirs = compress_dense(packed.to_dense())
        ours = compress(packed)
        values = packed.values.numel() * dtype.itemsize
        assert torch.equal(ours[:values], packed.values.reshape(-1).view(torch.uint8))
        # Where a kept value is zero, the library may choose another position.
        if bool((packed.values != 0).all()):
            assert torch.equal(ours, theirs[: len(ours)])


def test_every_shape_of_input(cuda: torch.device) -> None:
    packed = packed_weight(128, 256, torch.bfloat16, cuda)
    base = torch.randn(6, 5, 4, 256, device=cuda, dtype=torch.bfloat16)
    inputs = {
        "vector": base[0, 0, 0],
        "four dimensions": base,
        "transposed": torch.randn(256, 70, device=cuda, dtype=torch.bfloat16).T,
        "every other row": base[:, ::2],
        "not aligned": torch.randn(8 * 256 + 1, device=cuda, dtype=torch.bfloat16)[1:].reshape(8, 256),
        "expanded": base[0, 0, :1].expand(9, 256),
        "empty": base[:0],
        "empty rows": torch.empty(3, 0, 256, device=cuda, dtype=torch.bfloat16),
    }
    for x in inputs.values():
        y = nm_linear(x, packed)
        assert y.shape == (*x.shape[:-1], 128)
        if x.numel():
            close(y, exact(x, packed, None, None), torch.bfloat16)


@pytest.mark.parametrize("rows", [8, 96])
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_gradients(cuda: torch.device, rows: int, activation: str | None) -> None:
    packed = packed_weight(128, 256, torch.bfloat16, cuda)
    packed.values.requires_grad_()
    x = torch.randn(rows, 256, device=cuda, dtype=torch.bfloat16, requires_grad=True)
    bias = torch.randn(128, device=cuda, dtype=torch.bfloat16, requires_grad=True)
    gradient = torch.randn(rows, 128, device=cuda, dtype=torch.bfloat16)
    got = torch.autograd.grad(
        nm_linear(x, packed, bias, activation=activation), (x, packed.values, bias), gradient
    )
    double = packed.with_values(packed.values.detach().double().requires_grad_())
    inputs = (x.detach().double().requires_grad_(), bias.detach().double().requires_grad_())
    expected = torch.autograd.grad(
        exact(inputs[0], double, inputs[1], activation),
        (inputs[0], double.values, inputs[1]),
        gradient.double(),
    )
    for ours, theirs in zip(got, expected, strict=True):
        assert float((ours.double() - theirs).abs().max()) <= 0.03 * float(theirs.abs().max())


def test_choice_is_measured_kept_and_found_again(cuda: torch.device, tmp_path: Path) -> None:
    packed = packed_weight(512, 1024, torch.bfloat16, cuda)
    x = torch.randn(40, 1024, device=cuda, dtype=torch.bfloat16)
    with tuning(folder=tmp_path / "kept"):
        nm_linear(x, packed)
        (file,) = (tmp_path / "kept").iterdir()
        before = file.read_text()
        assert "512|1024|packed|40" in before
        fresh = packed_weight(512, 1024, torch.bfloat16, cuda)
        nm_linear(x, fresh)
        assert file.read_text() == before
    with tuning("table", folder=tmp_path / "none"):
        other = packed_weight(528, 1040, torch.bfloat16, cuda)
        plain = LinearEpilogue(None, False, False, torch.bfloat16)
        assert measure.choose(other, 8, None, None, None, plain) == LinearChoice("dense")
    assert not (tmp_path / "none").exists()


def test_wrong_numbers_are_never_chosen(cuda: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = packed_weight(4096, 4096, torch.bfloat16, cuda)
    true_call = execution.make_call

    def wrong(choice: LinearChoice, *arguments: Any) -> execution.Call:
        call = true_call(choice, *arguments)

        def off(*tensors: Tensor | None) -> Tensor:
            y = call(*tensors)
            if choice.method == "vendor":
                y[-1, -1] += y.abs().max()
            return y

        return off

    plain = LinearEpilogue(None, False, False, torch.bfloat16)
    assert measure.measure(packed, 4096, None, packed.to_dense(), None, plain).method == "vendor"
    monkeypatch.setattr(execution, "make_call", wrong)
    assert measure.measure(packed, 4096, None, packed.to_dense(), None, plain).method == "dense"


@pytest.mark.parametrize("rows", [4, 256])
def test_cuda_graph(cuda: torch.device, rows: int) -> None:
    layer = SparseLinear.from_dense(nn.Linear(512, 256, device=cuda, dtype=torch.bfloat16))
    x = torch.randn(rows, 512, device=cuda, dtype=torch.bfloat16)
    with torch.no_grad():
        layer(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = layer(x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        close(y, exact(x, layer.packed, layer.bias, None), torch.bfloat16)


def test_capture_before_the_first_call(cuda: torch.device) -> None:
    packed = packed_weight(256, 512, torch.bfloat16, cuda)
    x = torch.randn(64, 512, device=cuda, dtype=torch.bfloat16)
    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that the graph is empty
        with (
            pytest.raises(ImplementationError, match="once before"),
            torch.cuda.graph(torch.cuda.CUDAGraph()),
        ):
            nm_linear(x, packed, impl="vendor")
    close(nm_linear(x, packed, impl="vendor"), exact(x, packed, None, None), torch.bfloat16)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, in its compiler
@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile(cuda: torch.device, backend: str, frozen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []

    def spy(*tensors: Any) -> PackedNM | None:
        found.append(execution.owner_of(*tensors))
        return found[-1]

    monkeypatch.setattr(compiled_products, "owner_of", spy)
    model = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 512)).to(cuda, torch.bfloat16)
    for parameter in model.parameters():
        parameter.requires_grad_(not frozen)
    model[0] = SparseLinear.from_dense(model[0])
    model[2] = SparseLinear.from_dense(model[2])
    x = torch.randn(64, 512, device=cuda, dtype=torch.bfloat16)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    with torch.no_grad():
        for _ in range(2):
            expected = model(x)
            assert float((compiled(x) - expected).abs().max()) <= 0.02 * float(expected.abs().max())
            model[0].values.mul_(3)  # compiled code has to see it
            y = compiled(x)
            assert float((y - model(x)).abs().max()) <= 0.02 * float(y.abs().max())
    packed = model[0].packed
    assert found[0] is packed
    plans = packed.plans["cuda"]
    # Compiled code finds the weight again, with the products that were done before.
    assert execution.owner_of(packed.values.detach(), plans.buffer, plans.metadata) is packed
    assert execution.owner_of(packed.values.clone(), plans.buffer, plans.metadata) is None


def test_values_live_in_the_compressed_buffer(cuda: torch.device) -> None:
    linear = nn.Linear(512, 256, device=cuda, dtype=torch.bfloat16)
    layer = SparseLinear.from_dense(linear, keep_dense=False)
    x = torch.randn(64, 512, device=cuda, dtype=torch.bfloat16)
    layer(x)
    plans = layer.packed.plans["cuda"]
    assert plans.buffer.data_ptr() == layer.values.data_ptr()
    with torch.no_grad():
        layer.values.mul_(2)
    close(
        nm_linear(x, layer.packed, layer.bias, impl="vendor"),
        exact(x, layer.packed, layer.bias, None),
        torch.bfloat16,
    )
    layer.to(torch.float16)
    close(layer(x.half()).detach(), exact(x.half(), layer.packed, layer.bias, None), torch.float16)


def test_what_cannot_run_by_name_raises(cuda: torch.device) -> None:
    one_of_four = PackedNM.from_dense(
        torch.eye(64, device=cuda, dtype=torch.bfloat16), pattern=NMPattern(1, 4)
    )
    x = torch.randn(8, 64, device=cuda, dtype=torch.bfloat16)
    for impl in ("vendor", "cuda"):
        with pytest.raises(ImplementationError, match="2:4"):
            nm_linear(x, one_of_four, impl=impl)
    with pytest.raises(ImplementationError, match="few rows"):
        nm_linear(
            torch.randn(33, 128, device=cuda).bfloat16(),
            packed_weight(64, 128, torch.bfloat16, cuda),
            impl="cuda",
        )
    integers = packed_weight(64, 128, torch.int8, cuda)
    with pytest.raises(ImplementationError, match="few rows"):
        nm_linear(torch.ones(8, 128, dtype=torch.int8, device=cuda), integers, impl="cuda")
    with pytest.raises(ImplementationError, match="cuSPARSELt"):
        nm_linear(
            torch.ones(8, 128, dtype=torch.int8, device=cuda),
            integers,
            out_dtype=torch.float32,
            impl="vendor",
        )


@pytest.mark.parametrize("shape", [(40, 96), (1000, 64), (64, 100), (7, 4), (129, 260)])
@pytest.mark.parametrize("rows", [1, 9, 70])
@pytest.mark.parametrize("impl", ["cuda", "vendor", "auto"])
def test_weights_of_any_size(cuda: torch.device, shape: tuple[int, int], rows: int, impl: str) -> None:
    if impl == "cuda" and rows > decode_cuda.MOST_ROWS:
        pytest.skip("for few rows only")
    for dtype in (torch.bfloat16, torch.float16):
        packed = packed_weight(*shape, dtype, cuda)
        x = torch.randn(rows, shape[1], device=cuda, dtype=dtype)
        bias = torch.randn(shape[0], device=cuda, dtype=dtype)
        for activation in (None, "relu"):
            y = nm_linear(x, packed, bias, activation=activation, impl=impl)
            assert y.shape == (rows, shape[0])
            assert y.is_contiguous()
            close(y, exact(x, packed, bias, activation), dtype)
    if impl != "cuda":
        packed = packed_weight(*shape, torch.int8, cuda)
        x = torch.randint(-127, 128, (rows, shape[1]), device=cuda, dtype=torch.int8)
        sums = x.double() @ packed.to_dense().double().T
        assert torch.equal(nm_linear(x, packed, impl=impl).double(), sums)
        scale = torch.rand(shape[0], device=cuda) * 1e-3
        y = nm_linear(x, packed, scale=scale, out_dtype=torch.float16, impl=impl)
        close(y, sums * scale.double(), torch.float16)


@pytest.mark.parametrize("autocast", [False, True])
def test_training_layer(cuda: torch.device, autocast: bool) -> None:
    torch.manual_seed(0)
    dtype = torch.float32 if autocast else torch.bfloat16
    layer = SparseTrainingLinear(1024, 2048, decay=1e-2, device=cuda, dtype=dtype)
    x = torch.randn(4096, 1024, device=cuda, dtype=dtype, requires_grad=True)
    for _ in range(2):  # the second pass uses what the first measured
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
            y = layer(x)
        gradient = torch.randn_like(y)
        of_x, of_weight, of_bias = torch.autograd.grad(y, (x, layer.weight, layer.bias), gradient)
        mask = layer.mask()
        weight16 = layer.weight.detach().bfloat16()
        pruned = weight16.masked_fill(~transposable_mask(weight16), 0).double()
        x16 = x.detach().bfloat16().double()
        assert mask.shape == layer.weight.shape
        for ours, theirs in (
            (y, x16 @ pruned.T + layer.bias.double()),
            (of_x, gradient.double() @ pruned),
            (of_weight, gradient.double().T @ x16 + 1e-2 * (weight16.double() - pruned)),
            (of_bias, gradient.double().sum(0)),
        ):
            error = (ours.detach().double() - theirs.detach()).abs().max()
            assert float(error) <= 0.02 * float(theirs.detach().abs().max())


def test_unknown_version_keeps_to_the_first_algorithm(
    cuda: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "CHECKED", {})
    packed = packed_weight(256, 512, torch.bfloat16, cuda)
    found = measure.candidates(packed, 256, LinearEpilogue(None, True, False, torch.bfloat16))
    assert found == [LinearChoice("vendor", 0)]


def test_autocast_changes_no_product_that_was_done_before(cuda: torch.device) -> None:
    packed = packed_weight(256, 512, torch.float16, cuda)
    x = torch.randn(128, 512, device=cuda, dtype=torch.float16)
    with tuning("table"):  # knows nothing of this size: the dense product
        expected = nm_linear(x, packed)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = nm_linear(x, packed)
    assert y.dtype == torch.float16
    assert torch.equal(y, expected)


def test_training_layer_follows_tuning(cuda: torch.device, tmp_path: Path) -> None:
    layer = SparseTrainingLinear(128, 128, device=cuda, dtype=torch.bfloat16)
    x = torch.randn(64, 128, device=cuda, dtype=torch.bfloat16)
    layer(x)
    with tuning(folder=tmp_path / "other"):
        layer(x)
    assert list((tmp_path / "other").iterdir())
