"""Products by a launch plan give the bits of an ordinary call, or make an ordinary call."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sparse_core.formats import BSR, COO, CSR, ELL, HYB, NM, CompactCSR, SlicedELL, SparseMatrix, generators
from sparse_core.kernels.launch_plan import SWITCH, LaunchPlan
from sparse_core.linalg import spmm, spmv

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cuda")]
Product = Callable[[SparseMatrix, Tensor], Tensor]


def matrix_of(kind: type[SparseMatrix], rows: int = 300) -> SparseMatrix:
    made = generators.random_uniform(rows, per_row=6, seed=3, device="cuda")
    options = {"block_size": (16, 16)} if kind is BSR else {}
    if kind is NM:
        dense = torch.randn(rows, 320, device="cuda")
        kept = dense.view(rows, -1, 4).abs().topk(2, dim=2).indices
        mask = torch.zeros(rows, 80, 4, device="cuda").scatter_(2, kept, 1.0).view(rows, 320)
        return NM.from_dense(dense * mask)
    return made.to(kind, **options)


def ordinary(product: Product, matrix: SparseMatrix, dense: Tensor) -> Tensor:
    """Call the named implementation, which has no plan."""
    return product(matrix, dense, impl="triton")  # type: ignore[call-arg]


def plans(matrix: SparseMatrix) -> list[object]:
    return list(matrix._plans.values())


@pytest.mark.parametrize("kind", [CSR, COO, ELL, SlicedELL, HYB, BSR, NM, CompactCSR])
@pytest.mark.parametrize("product", [spmv, spmm])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_the_same_bits_each_time(kind: type[SparseMatrix], product: Product, dtype: torch.dtype) -> None:
    matrix = matrix_of(kind)
    shape = (matrix.shape[1],) if product is spmv else (matrix.shape[1], 32)
    for turn in range(5):
        dense = torch.randn(shape, device="cuda", dtype=dtype)
        assert torch.equal(product(matrix, dense), ordinary(product, matrix, dense)), turn


@pytest.mark.parametrize("product", [spmv, spmm])
def test_csr_has_a_plan(product: Product) -> None:
    matrix = matrix_of(CSR)
    dense = torch.randn((300,) if product is spmv else (300, 8), device="cuda")
    for _ in range(3):
        product(matrix, dense)
    assert [type(one) for one in plans(matrix)] == [LaunchPlan]


def test_the_precision_of_float32_is_asked() -> None:
    matrix, dense = matrix_of(BSR), torch.randn(300, 64, device="cuda")
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("highest", "high", "highest"):
            torch.set_float32_matmul_precision(precision)
            for _ in range(4):
                assert torch.equal(spmm(matrix, dense), ordinary(spmm, matrix, dense)), precision
    finally:
        torch.set_float32_matmul_precision(before)


def arrow(size: int = 5000) -> CSR:
    every, first = torch.arange(size), torch.zeros(size, dtype=torch.int64)
    row, column = torch.cat([first, every[1:], every[1:]]), torch.cat([every, first[1:], every[1:]])
    return COO(row, column, torch.randn(len(row)), (size, size)).to(CSR).to("cuda")


@pytest.mark.parametrize("product", [spmv, spmm])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_products_of_several_launches_have_plans(product: Product, dtype: torch.dtype) -> None:
    for matrix in (arrow(), generators.power_law(20_000, alpha=1.8, seed=1, device="cuda")):
        shape = (matrix.shape[1],) if product is spmv else (matrix.shape[1], 32)
        for turn in range(5):
            dense = torch.randn(shape, device="cuda", dtype=dtype)
            assert torch.equal(product(matrix, dense), ordinary(product, matrix, dense)), turn
        (found,) = plans(matrix)
        assert isinstance(found, LaunchPlan)
        assert isinstance(found._kept, list)
        assert len(found._kept) > 1


def test_scratch_memory_is_that_of_the_stream() -> None:
    matrix, x = arrow(200_000), torch.randn(200_000, device="cuda")
    for _ in range(3):
        expected = spmv(matrix, x)
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    made = []
    for turn in range(40):
        with torch.cuda.stream(streams[turn % 4]):
            made.append(spmv(matrix, x))
    torch.cuda.synchronize()
    assert all(torch.equal(one, expected) for one in made)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = spmv(matrix, x)
    x.neg_()
    graph.replay()
    assert torch.equal(captured, -expected)


def test_hyb_has_no_plan() -> None:
    """A HYB matrix adds two products outside of kernels."""
    matrix = arrow().to(HYB)
    for _ in range(4):
        x = torch.randn(5000, device="cuda")
        assert torch.equal(spmv(matrix, x), ordinary(spmv, matrix, x))
    assert plans(matrix) == [False]


def test_plans_see_changed_values() -> None:
    matrix, x = matrix_of(CSR), torch.randn(300, device="cuda")
    for _ in range(3):
        before = spmv(matrix, x)
    matrix.values.mul_(2)
    assert torch.equal(spmv(matrix, x), 2 * before)
    x.mul_(2)
    assert torch.equal(spmv(matrix, x), 4 * before)
    other = matrix.with_values(-matrix.values)
    assert torch.equal(spmv(other, x), -4 * before)
    matrix.values = matrix.values.clone().neg_()
    assert torch.equal(spmv(matrix, x), -4 * before)


def test_operands_that_do_not_fit_take_the_ordinary_way() -> None:
    matrix = matrix_of(CSR)
    x = torch.randn(300, device="cuda")
    for _ in range(3):
        spmv(matrix, x)
    shifted = torch.randn(301, device="cuda")[1:]
    strided = torch.randn(600, device="cuda")[::2]
    for other in (shifted, strided, x.double(), x.half(), torch.nn.Parameter(x)):
        assert torch.equal(spmv(matrix, other).detach(), ordinary(spmv, matrix, other).detach())
    with pytest.raises(ValueError, match="length"):
        spmv(matrix, x[:-1])
    with pytest.raises(TypeError, match="dense tensor"):
        spmv(matrix, x.tolist())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="matrix on cuda"):
        spmv(matrix, x.cpu())


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # A warning of torch at the first jvp.
def test_gradients_transforms_and_autocast() -> None:
    matrix = matrix_of(CSR)
    x = torch.randn(300, device="cuda")
    for _ in range(3):
        plain = spmv(matrix, x)
    followed = x.clone().requires_grad_()
    made = spmv(matrix, followed)
    made.sum().backward()
    assert followed.grad is not None
    assert torch.allclose(followed.grad, matrix.to_dense().sum(0), atol=1e-5)
    _, tangent = torch.func.jvp(lambda one: spmv(matrix, one), (x,), (x,))
    assert torch.equal(tangent, plain)
    with torch.autocast("cuda"):
        assert torch.equal(spmv(matrix, x), plain)
    with torch.inference_mode():
        assert torch.equal(spmv(matrix, x), plain)


def test_values_as_operand() -> None:
    """The operand is two arguments of the launch."""
    matrix = matrix_of(CSR)
    square = CSR(matrix.row_ptr, matrix.col, matrix.values, (300, 1800))
    for _ in range(4):
        spmv(square, square.values)
    other = torch.randn(1800, device="cuda")
    assert torch.equal(spmv(square, other), ordinary(spmv, square, other))


def test_streams_and_graphs() -> None:
    matrix = matrix_of(CSR)
    x = torch.randn(300, device="cuda")
    for _ in range(3):
        expected = spmv(matrix, x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(10_000_000)
        there = spmv(matrix, x)
    side.synchronize()
    assert torch.equal(there, expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = spmv(matrix, x)
    x.neg_()
    graph.replay()
    assert torch.equal(captured, -expected)


def test_no_operand_is_held() -> None:
    matrix = matrix_of(CSR)
    for _ in range(4):
        x = torch.randn(300, device="cuda")
        made = spmv(matrix, x)
        gone = weakref.ref(x), weakref.ref(made)
        del x, made
        gc.collect()
        assert all(one() is None for one in gone)


def test_plans_of_many_shapes_are_bounded() -> None:
    matrix = matrix_of(CSR)
    for width in range(1, 80):
        dense = torch.randn(300, width, device="cuda")
        assert torch.equal(spmm(matrix, dense), ordinary(spmm, matrix, dense))
    assert len(matrix._plans) <= 32


@pytest.mark.parametrize("product", [spmv, spmm])
@pytest.mark.parametrize("kind", [CSR, ELL, BSR, NM])
def test_switching_plans_off_changes_no_bit(
    kind: type[SparseMatrix], product: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for value in ("0", "1"):
        monkeypatch.setenv(SWITCH, value)
        torch.manual_seed(1)
        matrix = matrix_of(kind)
        dense = torch.randn((matrix.shape[1],) if product is spmv else (matrix.shape[1], 32), device="cuda")
        found[value] = [product(matrix, dense) for _ in range(5)]
        if value == "0":
            assert not any(isinstance(one, LaunchPlan) for one in plans(matrix))
    assert all(torch.equal(one, other) for one, other in zip(found["0"], found["1"], strict=True))
