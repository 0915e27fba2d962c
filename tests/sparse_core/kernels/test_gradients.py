"""Gradients of gradients and in forward mode: right, or refused. A new ``autograd.Function`` joins a list."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from perception.model.segments import _SegmentReduce
from perception.train.ranks import Ranks
from perception.train.synchronised_norm import _Normalise
from sparse_core.attention.cpu import _FiniteGradients
from sparse_core.attention.masked_arithmetic import masked_scores, weighted_sum
from sparse_core.conv.convolution.reference import sparse_convolution
from sparse_core.conv.pooling import SparseAvgPool2d, SparseMaxPool2d
from sparse_core.conv.table import NeighbourTable
from sparse_core.dynamic.rigl.block_product.api import block_convolution, block_linear
from sparse_core.dynamic.rigl.block_product.plan import Taps, plan_blocks
from sparse_core.dynamic.rigl.grid import plan_grid, random_cells
from sparse_core.formats import BSR, COO, CSR, ELL
from sparse_core.formats.assemble import assemble_csr
from sparse_core.kernels.gradients import once_differentiable
from sparse_core.linalg import sddmm, solve, spgemm, spmm, spmv, triangular_solve
from sparse_core.nm.packing.codebook import lookup
from sparse_core.nm.training.estimators import masked_weight
from sparse_core.nm.training.sparse_linear import SparseTrainingLinear

# torch makes its rules for forward mode when they are first asked for, and says so.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")

Case = tuple[Callable[..., Any], tuple[Tensor, ...]]
ROOT = Path(__file__).parents[3]


def numbers(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    made = torch.rand(shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))
    return (made + 0.1).requires_grad_()


def matrix(rows: int = 4, columns: int = 4, dtype: torch.dtype = torch.float64) -> CSR:
    """A diagonal that dominates, and about half of the rest."""
    full = numbers(rows, columns, dtype=dtype).detach()
    kept = torch.rand(rows, columns, generator=torch.Generator().manual_seed(1)) > 0.5
    return CSR.from_dense(full * kept + 4 * torch.eye(rows, columns, dtype=dtype))


def product(multiply: Callable[..., Tensor], dense: Tensor, kind: type = CSR, **options: Any) -> Case:
    held = matrix(dtype=dense.dtype).to(kind, **({"block_size": (2, 2)} if kind is BSR else {}))
    values = held.values.detach().clone().requires_grad_()
    return lambda values, dense: multiply(held.with_values(values), dense, **options), (values, dense)


def sparse_product(dtype: torch.dtype) -> Case:
    a, b = matrix(4, 4, dtype), matrix(4, 3, dtype)
    values = tuple(one.values.detach().clone().requires_grad_() for one in (a, b))
    return lambda u, v: spgemm(a.with_values(u), b.with_values(v)).values, values


def hermitian_solve(method: str) -> Case:
    """The matrix stays Hermitian: its values are a function of a factor."""
    pattern = CSR.from_dense(torch.ones(4, 4, dtype=torch.float64))

    def solution(factor: Tensor, b: Tensor) -> Tensor:
        full = factor @ factor.mT + torch.eye(4, dtype=torch.float64)
        return solve(pattern.with_values(full.reshape(-1)), b, method=method, rtol=1e-13)  # type: ignore[arg-type]

    return solution, (numbers(4, 4), numbers(4))


def convolution() -> Case:
    rows = torch.tensor([[-1, 0, 1], [0, 1, 2], [1, 2, -1]])
    neighbours = NeighbourTable(rows, rows.flip(0))
    return lambda x, w, b: sparse_convolution(x, w, neighbours, b), (
        numbers(3, 2),
        numbers(4, 3, 2),
        numbers(4),
    )


def pooling(layer: type[SparseAvgPool2d | SparseMaxPool2d]) -> Case:
    rows = torch.tensor([[-1, 0, 1], [0, 1, 2], [1, 2, -1]])
    return lambda x: layer(2).pooled(x, NeighbourTable(rows, rows.flip(0))), (numbers(3, 2),)


def assembled(values: Tensor) -> Tensor:
    row, col = torch.tensor([0, 1, 0, 1, 0]), torch.tensor([1, 0, 1, 1, 0])
    made = assemble_csr(row, col, values, (2, 2)).values
    return made * made


def segments(reduce: str) -> Case:
    counts = torch.tensor([1, 3, 2])
    return lambda rows: _SegmentReduce.apply(rows, counts, reduce) ** 2, (numbers(6, 3),)


def norm_of_ranks() -> Case:
    """Of one rank, whose mean and variance are told."""
    told = (torch.zeros(3), torch.ones(3), 4, Ranks())
    return lambda rows, weight, bias: _Normalise.apply(rows, weight, bias, *told), (
        numbers(4, 3),
        numbers(3),
        numbers(3),
    )


MASK = torch.tensor([True, False, True, False])
CODES = torch.tensor([[0, 1, 2], [2, 1, 0]], dtype=torch.uint8)
COMPLEX = torch.complex128
DENSE_SOLVE = {"method": "gmres", "rtol": 1e-13}

PAIRS = torch.tensor([[True, False, True], [True, True, False]])


def gated(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Masked attention in plain torch, behind the gate of torch's own."""
    weights = torch.softmax((q @ k.mT).masked_fill(~PAIRS, -torch.inf), dim=-1)
    out: Tensor = _FiniteGradients.apply(weights @ v, q, k, v, PAIRS, 1.0)
    return out


TWICE: dict[str, dict[str, Callable[[], Case]]] = {
    "sparse_core.attention.cpu._FiniteGradients": {
        "masked": lambda: (gated, (numbers(2, 4), numbers(3, 4), numbers(3, 4)))
    },
    "sparse_core.attention.masked_arithmetic._Scores": {
        "masked": lambda: (
            lambda q, k: masked_scores(q, k, PAIRS).masked_fill(~PAIRS, 0) ** 2,
            (numbers(2, 4), numbers(3, 4)),
        ),
    },
    "sparse_core.attention.masked_arithmetic._WeightedSum": {
        "masked": lambda: (
            lambda w, table: weighted_sum(w.masked_fill(~PAIRS, 0), table, PAIRS),
            (numbers(2, 3), numbers(3, 4)),
        ),
    },
    "perception.model.segments._SegmentReduce": {
        "mean": lambda: segments("mean"),
        "maximum": lambda: segments("max"),
    },
    "sparse_core.conv.pooling._Sum": {"mean": lambda: pooling(SparseAvgPool2d)},
    "sparse_core.conv.pooling._Maximum": {"maximum": lambda: pooling(SparseMaxPool2d)},
    "sparse_core.linalg.products.gradient._MatrixProduct": {
        "vendor": lambda: product(spmv, numbers(4)),
        "reference": lambda: product(spmv, numbers(4), impl="reference"),
        "transposed": lambda: product(spmv, numbers(4), transpose=True),
        "complex": lambda: product(spmv, numbers(4, dtype=COMPLEX)),
        "COO": lambda: product(spmv, numbers(4), COO),
        "ELL": lambda: product(spmv, numbers(4), ELL),
        "matrix, vendor": lambda: product(spmm, numbers(4, 2)),
        "matrix, batch": lambda: product(spmm, numbers(2, 4, 2)),
        "matrix, reference": lambda: product(spmm, numbers(4, 2), impl="reference"),
        "matrix, transposed": lambda: product(spmm, numbers(4, 2), transpose=True),
        "matrix, complex": lambda: product(spmm, numbers(4, 2, dtype=COMPLEX)),
        "matrix, blocks": lambda: product(spmm, numbers(4, 2), BSR),
    },
    "sparse_core.linalg.products.gradient._SampledProduct": {
        "real": lambda: (lambda a, b: sddmm(matrix(), a, b).values, (numbers(4, 3), numbers(3, 4))),
        "complex": lambda: (
            lambda a, b: sddmm(matrix(), a, b).values,
            (numbers(4, 3, dtype=COMPLEX), numbers(3, 4, dtype=COMPLEX)),
        ),
    },
    "sparse_core.linalg.spgemm.gradient._ProductValues": {
        "real": lambda: sparse_product(torch.float64),
        "complex": lambda: sparse_product(COMPLEX),
    },
    # The gradient of the one above, whose own gradient that case asks for.
    "sparse_core.linalg.spgemm.gradient._LeftGradient": {"real": lambda: sparse_product(torch.float64)},
    "sparse_core.linalg.triangular.api._TriangularSolve": {
        "lower": lambda: product(triangular_solve, numbers(4, 2)),
        "upper": lambda: product(triangular_solve, numbers(4), lower=False),
        "transposed": lambda: product(triangular_solve, numbers(4), transpose=True),
        "unit diagonal": lambda: product(triangular_solve, numbers(4), unit_diagonal=True),
        "reference": lambda: product(triangular_solve, numbers(4), impl="reference"),
        "complex": lambda: product(triangular_solve, numbers(4, dtype=COMPLEX)),
    },
    "sparse_core.linalg.krylov.differentiable._DifferentiableSolve": {
        "cg": lambda: hermitian_solve("cg"),
        "bicgstab": lambda: (
            lambda full, b: solve(
                full + 4 * torch.eye(3, dtype=full.dtype), b, method="bicgstab", rtol=1e-12
            ),
            (numbers(3, 3), numbers(3)),
        ),
        "gmres": lambda: product(solve, numbers(4), **DENSE_SOLVE),
        "complex": lambda: product(solve, numbers(4, dtype=COMPLEX), **DENSE_SOLVE),
        "dense": lambda: (
            lambda full, b: solve(full + 4 * torch.eye(3), b, **DENSE_SOLVE),  # type: ignore[arg-type]
            (numbers(3, 3), numbers(3)),
        ),
    },
    "sparse_core.formats.assemble.api._GatherGradient": {"duplicates": lambda: (assembled, (numbers(5),))},
    "sparse_core.nm.packing.codebook._Lookup": {
        "zero": lambda: (lambda c: lookup(c, CODES, zero=True) ** 2, (numbers(2),)),
        "all": lambda: (lambda c: lookup(c, CODES, zero=False) ** 2, (numbers(3),)),
    },
    "sparse_core.conv.convolution.reference._GatherConvolution": {"submanifold": convolution},
}
#: Estimators: their gradient is not that of the function, so only the second order has an answer.
ESTIMATORS: dict[str, Callable[[], Case]] = {
    "sparse_core.nm.training.estimators._StraightThrough": lambda: (
        lambda w: masked_weight(w, MASK, "sr-ste", 0.1),
        (numbers(4),),
    ),
}


def blocks() -> tuple[Tensor, Any]:
    grid = plan_grid(4, 6, density=0.5, structure="block", block_size=(2, 2))
    plan = plan_blocks(random_cells(grid, torch.Generator().manual_seed(0)), grid)
    return numbers(*grid.values_shape), plan


def linear_of_blocks() -> Case:
    values, plan = blocks()
    return lambda x, values: block_linear(x, values, plan), (numbers(3, 6), values)


def convolution_of_blocks() -> Case:
    values, plan = blocks()
    taps = Taps((1, 1), (1, 1), (0, 0), (1, 1))
    return lambda x, values: block_convolution(x, values, plan, taps), (numbers(1, 6, 2, 2), values)


def pruned_linear() -> Case:
    layer = SparseTrainingLinear(8, 8, bias=False).double()
    return lambda x, _weight: layer(x), (numbers(2, 8), layer.weight)


#: None where no CPU runs it.
REFUSED: dict[str, Callable[[], Case] | None] = {
    "sparse_core.attention.gpu.attention._BlockAttention": None,
    "sparse_core.attention.gpu.training_plans._PlannedAttention": None,
    "sparse_core.attention.gathered.gradient._GatheredAttention": None,
    "sparse_core.conv.convolution.triton._TritonConvolution": None,
    "sparse_core.nm.linear.product._Product": None,
    "sparse_core.nm.training.sparse_linear._PrunedProduct": pruned_linear,
    "sparse_core.dynamic.rigl.block_product.api._BlockLinear": linear_of_blocks,
    "sparse_core.dynamic.rigl.block_product.api._BlockConvolution": convolution_of_blocks,
    "perception.train.synchronised_norm._Normalise": norm_of_ranks,
}
#: What refuses.
_REFUSAL = "sparse_core.kernels.gradients._Refusal"


def functions() -> set[str]:
    """Every subclass of ``autograd.Function`` in the sources, whether its module can be imported or not."""
    found = set()
    for folder in ("sparse_core", "perception", "memory", "demos", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if "Function" not in text:
                continue
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef) and any(
                    ast.unparse(base).split(".")[-1] == "Function" for base in node.bases
                ):
                    found.add(f"{module}.{node.name}")
    return found


def test_every_function_is_listed() -> None:
    listed = [*TWICE, *ESTIMATORS, *REFUSED, _REFUSAL]
    assert len(listed) == len(set(listed))
    assert functions() == set(listed), "say in this file whether it can be differentiated twice"


def test_nobody_takes_the_decorator_of_torch() -> None:
    """It leaves out second derivatives where the incoming gradient is a constant."""
    for folder in ("sparse_core", "perception", "memory"):
        for path in (ROOT / folder).rglob("*.py"):
            assert "torch.autograd.function import once_differentiable" not in path.read_text("utf-8"), path


CASES = [
    pytest.param(case, id=f"{name.split('.')[-3]}.{name.split('.')[-1]} {which}")
    for name, cases in TWICE.items()
    for which, case in cases.items()
]


@pytest.mark.parametrize("case", CASES)
def test_gradients_of_first_and_second_order(case: Callable[[], Case]) -> None:
    function, inputs = case()
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs)


@pytest.mark.parametrize("case", ESTIMATORS.values(), ids=ESTIMATORS.keys())
def test_gradients_of_estimators(case: Callable[[], Case]) -> None:
    assert gradgradcheck(*case())


LINEAR_ALGEBRA = [
    pytest.param(case, id=f"{name.split('.')[-3]}.{name.split('.')[-1]} {which}")
    for name, cases in TWICE.items()
    if "linalg" in name or "assemble" in name
    for which, case in cases.items()
]


@pytest.mark.parametrize("case", LINEAR_ALGEBRA)
def test_forward_mode(case: Callable[[], Case]) -> None:
    function, inputs = case()
    assert gradcheck(function, inputs, check_forward_ad=True, check_backward_ad=False)


def test_forward_mode_through_a_conversion() -> None:
    """Without a gradient to record, the tangent is not lost on the way from COO to CSR."""
    row, col = torch.tensor([0, 1, 0]), torch.tensor([1, 0, 1])
    values, x = torch.ones(3, dtype=torch.float64), torch.tensor([2.0, 3.0], dtype=torch.float64)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(values, torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64))
        result = forward_ad.unpack_dual(COO(row, col, dual, (2, 2)).to(CSR) @ x)
    assert result.primal.tolist() == [6, 2]
    assert result.tangent.tolist() == [303, 20]


def test_functional_transforms() -> None:
    held, x = matrix(), numbers(4).detach()
    full = held.to_dense()

    def loss(values: Tensor, x: Tensor) -> Tensor:
        return (held.with_values(values) @ x).square().sum()

    def dense(full: Tensor, x: Tensor) -> Tensor:
        return (full @ x).square().sum()

    stored = full != 0
    found = torch.func.grad(loss, (0, 1))(held.values, x)
    expected = torch.func.grad(dense, (0, 1))(full, x)
    torch.testing.assert_close(found[0], expected[0][stored])
    torch.testing.assert_close(found[1], expected[1])
    _, tangent = torch.func.jvp(loss, (held.values, x), (held.values, x))
    torch.testing.assert_close(tangent, torch.func.jvp(dense, (full, x), (full, x))[1])


@pytest.mark.parametrize("name", REFUSED)
def test_the_refusal_is_declared(name: str) -> None:
    module, _, cls = name.rpartition(".")
    if REFUSED[name] is None:
        pytest.importorskip("triton", reason="the kernels of this module are Triton's")
    backward = getattr(importlib.import_module(module), cls).backward
    assert backward.__globals__["__name__"] == once_differentiable.__module__


@pytest.mark.parametrize("name", [name for name, case in REFUSED.items() if case])
@pytest.mark.parametrize("constant", [True, False], ids=["sum", "squares"])
def test_second_order_is_refused(name: str, constant: bool) -> None:
    """Also where the incoming gradient is a constant: torch's decorator lets that pass as zero."""
    case = REFUSED[name]
    assert case is not None
    function, inputs = case()
    result = function(*inputs)
    loss = result.sum() if constant else result.square().sum()
    first = torch.autograd.grad(loss, inputs, create_graph=True)
    plain = torch.autograd.grad(function(*inputs).sum() if constant else loss, inputs, retain_graph=True)
    assert all(torch.equal(one, other) for one, other in zip(first, plain, strict=True))
    with pytest.raises(RuntimeError, match=r"cannot differentiate twice: .* once_differentiable"):
        torch.autograd.grad(loss + first[0].square().sum(), inputs)


def test_a_penalty_on_the_gradient() -> None:
    """What was left out: the gradient of a sum, differentiated by the values."""
    held, x = matrix(), numbers(4)
    values = held.values.detach().clone().requires_grad_()
    full = held.to_dense().requires_grad_()
    (of_x,) = torch.autograd.grad((held.with_values(values) @ x).sum(), x, create_graph=True)
    (expected_of_x,) = torch.autograd.grad((full @ x).sum(), x, create_graph=True)
    (found,) = torch.autograd.grad(of_x.square().sum(), values)
    (expected,) = torch.autograd.grad(expected_of_x.square().sum(), full)
    torch.testing.assert_close(found, expected[held.to_dense() != 0])
