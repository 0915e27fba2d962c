"""Compare the Triton products with the references on one device; prints a JSON report.

Run on its own by test_products_triton.py, because Triton decides at import whether it interprets kernels.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import triton
from torch import Tensor

from sparse_core.formats import BSR, COO, CSR, ELL, HYB, NM, CompactCSR, SlicedELL, SparseMatrix
from sparse_core.linalg import sddmm, spmm, spmv
from sparse_core.linalg.sddmm import triton as sddmm_kernels
from sparse_core.linalg.spmm import triton as spmm_kernels
from sparse_core.linalg.spmv import plan
from tests.sparse_core.oracles.poisoned_memory import poisoned_memory

HALF, BRAIN, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
DTYPES = [
    (SINGLE, SINGLE),
    (DOUBLE, DOUBLE),
    (HALF, HALF),
    (BRAIN, BRAIN),
    (HALF, SINGLE),
    (SINGLE, HALF),
    (SINGLE, DOUBLE),
    (DOUBLE, BRAIN),
    (HALF, BRAIN),
]
#: Cases of a quick comparison.
QUICK = {
    f"one dense row {SINGLE} {SINGLE}",
    f"one dense row {HALF} {SINGLE}",
    f"no row {SINGLE} {SINGLE}",
    f"no column {SINGLE} {SINGLE}",
}
TOLERANCE = {HALF: 2e-3, BRAIN: 1.6e-2, SINGLE: 2e-5, DOUBLE: 1e-12}
METHODS = ("auto", "scalar", "vector", "adaptive", "merge", "pattern")
GENERATOR = torch.Generator().manual_seed(0)
INTERPRETED = not isinstance(spmm_kernels._runs_kernel, triton.JITFunction)


def random(*shape: int, dtype: torch.dtype = SINGLE) -> Tensor:
    """Normal numbers, drawn on the CPU so that every device gets the same."""
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


def scattered(rows: int, columns: int, density: float) -> Tensor:
    """Random entries, each third row empty."""
    mask = torch.rand(rows, columns, generator=GENERATOR) < density
    mask[::3] = False
    return random(rows, columns) * mask


def matrices(size: int) -> dict[str, Tensor]:
    """Dense matrices by name; ``size`` is about the number of rows."""
    skewed = scattered(size, 2 * size + 3, 2.0 / size)
    skewed[size // 2] = random(2 * size + 3)
    stencil = torch.diag(random(size)) + torch.diag(random(size - 1), 1) + torch.diag(random(size - 4), -4)
    return {
        "scattered": scattered(size + 5, size - 2, 4.0 / size),
        "one dense row": skewed,
        "stencil": stencil,
        "one row": random(1, size),
        "one column": random(size, 1),
        "no entry": torch.zeros(size, 7),
        "no row": torch.zeros(0, 7),
        "no column": torch.zeros(7, 0),
    }


def long_rows() -> Tensor:
    """Rows that the merge kernel and the adaptive one share among programs, beside short ones."""
    dense = random(5, 9001)
    dense[0, 3:] = 0
    dense[2] = 0
    dense[3, ::3] = 0
    dense[4, 700:] = 0
    return dense


def formats(csr: CSR) -> Iterator[tuple[str, SparseMatrix]]:
    """The matrix in every format."""
    yield "CSR", csr
    if csr.dtype == SINGLE:
        yield "int64 CSR", CSR(csr.row_ptr.long(), csr.col.long(), csr.values, csr.shape)
    yield "COO", csr.to(COO)
    yield "ELL", csr.to(ELL)
    yield "SlicedELL", csr.to(SlicedELL, slice_height=4)
    yield "sorted SlicedELL", csr.to(SlicedELL, slice_height=4, sort_window=16)
    yield "HYB", csr.to(HYB)
    yield "BSR 3x2", csr.to(BSR, block_size=(3, 2))
    yield "BSR 16x16", csr.to(BSR, block_size=(16, 16))
    yield "NM", csr.to(NM, n=4, m=4)
    if csr.dtype in (HALF, BRAIN):
        yield "CompactCSR", csr.to(CompactCSR, dtype=csr.dtype)


def agrees(run: Callable[[str], Tensor]) -> str:
    """Return the differences between ``run("triton")`` and ``run("reference")``."""
    expected = run("reference")
    with poisoned_memory():
        found = run("triton")
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return f"{found.dtype} {tuple(found.shape)} for {expected.dtype} {tuple(expected.shape)}"
    finite = expected[expected.isfinite()]
    scale = max(1.0, float(finite.abs().max())) if finite.numel() else 1.0
    tolerance = TOLERANCE[expected.dtype]
    close = torch.isclose(found, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
    if not bool(close.all()):
        where = (~close).nonzero()[0].tolist()
        return (
            f"{int((~close).sum())} differ, first at {where}: {found[tuple(where)]} {expected[tuple(where)]}"
        )
    # The interpreter runs one program after the other, so that another run gives the same.
    if INTERPRETED or torch.equal(bits(run("triton")), bits(found)):
        return ""
    return "another run gives other bits"


def bits(tensor: Tensor) -> Tensor:
    """The bytes of a tensor, in which NaN equals itself."""
    return tensor.contiguous().view(torch.uint8)


def with_specials(dense: Tensor) -> Tensor:
    """Infinity in the first and last place (padding often points at the first), NaN in one between."""
    dense = dense.clone()
    if len(dense):
        dense[0], dense[-1] = torch.inf, -torch.inf
        dense[len(dense) // 2] = torch.nan
    return dense


def compare_vectors(dense: Tensor, dtypes: tuple[torch.dtype, torch.dtype]) -> dict[str, str]:
    """spmv in every format and by every method."""
    csr = CSR.from_dense(dense.to(dtypes[0]))
    x = random(dense.shape[1], dtype=dtypes[1]).to(dense.device)
    wrong = {}
    for name, matrix in formats(csr):
        for method in METHODS if name.endswith("CSR") and name != "CompactCSR" else ("auto",):
            for label, vector in (("", x), (" specials", with_specials(x))):

                def run(
                    impl: Any, matrix: Any = matrix, vector: Any = vector, method: Any = method
                ) -> Tensor:
                    return spmv(matrix, vector, impl=impl, method=method if impl == "triton" else "auto")

                try:
                    wrong[f"{name} {method}{label}"] = agrees(run)
                except ValueError as error:
                    # The pattern kernel refuses matrices without patterns, by name.
                    if "method='pattern' needs" not in str(error):
                        raise
    return wrong


def formats_of(csr: CSR, kinds: Any, dtypes: tuple[torch.dtype, torch.dtype]) -> Iterator[tuple[str, Any]]:
    """The matrix in the formats that an operation has kernels for."""
    for name, matrix in formats(csr):
        # The interpreter's dot product takes the bits of bfloat16 for integers.
        unreadable = not csr.values.is_cuda and dtypes == (BRAIN, BRAIN) and isinstance(matrix, BSR)
        if isinstance(matrix, kinds) and not unreadable:
            yield name, matrix
    if dtypes == DTYPES[0]:
        yield "BSR of several tiles", csr.to(BSR, block_size=(130, 70))


def compare_long_rows(
    dense: Tensor, methods: tuple[str, ...] = ("vector", "adaptive", "merge")
) -> dict[str, str]:
    """Check spmv by methods that split rows; a thread per row would take minutes interpreted."""
    matrix, x = CSR.from_dense(dense), random(dense.shape[1]).to(dense.device)
    return {
        method: agrees(
            lambda impl, method=method: spmv(
                matrix, x, impl=impl, method=method if impl == "triton" else "auto"
            )
        )
        for method in methods
    }


def compare_matrices(dense: Tensor, dtypes: tuple[torch.dtype, torch.dtype]) -> dict[str, str]:
    """spmm for CSR and BSR, odd widths, batches and strides."""
    csr = CSR.from_dense(dense.to(dtypes[0]))
    rows = dense.shape[1]
    wrong = {}
    right = random(3, rows, 34, dtype=dtypes[1]).to(dense.device)
    operands = {f"width {width}": right[0, :, :width] for width in (0, 1, 5, 33)}
    operands |= {"batch": right[:, :, :7], "columns first": right[0].T.contiguous().T[:, :9]}
    operands["specials"] = with_specials(right[0, :, :9])
    for name, matrix in formats_of(csr, CSR | BSR, dtypes):
        for label, operand in operands.items():
            wrong[f"{name} {label}"] = agrees(
                lambda impl, matrix=matrix, operand=operand: spmm(matrix, operand, impl=impl)
            )
    return wrong


def compare_samples(dense: Tensor, dtypes: tuple[torch.dtype, torch.dtype]) -> dict[str, str]:
    """sddmm for CSR, COO and BSR, shallow and deep."""
    csr = CSR.from_dense(dense)
    wrong = {}
    for name, pattern in formats_of(csr, CSR | COO | BSR, dtypes):
        for depth in (0, 1, 7, 40):
            a = random(dense.shape[0], depth, dtype=dtypes[0]).to(dense.device)
            b = random(depth, dense.shape[1], dtype=dtypes[1]).to(dense.device)
            # Specials where the depth takes several steps.
            for label, left in (("", a), (" specials", with_specials(a)))[: 2 if depth == 40 else 1]:
                wrong[f"{name} depth {depth}{label}"] = agrees(
                    lambda impl, pattern=pattern, left=left, b=b: sddmm(pattern, left, b, impl=impl).values
                )
    return wrong


def compare_gradients(dense: Tensor) -> dict[str, str]:
    """Gradients of all three in double precision."""
    x = random(dense.shape[1], 3, dtype=DOUBLE).to(dense.device)
    wrong = {}
    for target, options in ((CSR, {}), (BSR, {"block_size": (3, 2)})):
        matrix = CSR.from_dense(dense.double()).to(target, **options)
        for transpose in (False, True):
            right = x if not transpose else random(dense.shape[0], 3, dtype=DOUBLE).to(dense.device)
            for label, operand in (("spmv", right[:, 0]), ("spmm", right))[transpose:]:
                for which in (0, 1):
                    wrong[f"{label} {target.__name__} {transpose} {which}"] = agrees(
                        lambda impl, *rest, m=matrix, o=operand, t=transpose, w=which: gradient(
                            m, o, t, w, impl
                        )
                    )
    return wrong


def gradient(matrix: Any, operand: Tensor, transpose: bool, which: int, impl: Any) -> Tensor:
    """Gradient of the sum of squares of a product for its values (0) or its dense operand (1)."""
    values, operand = matrix.values.clone().requires_grad_(), operand.clone().requires_grad_()
    product = spmm(matrix.with_values(values), operand, transpose=transpose, impl=impl)
    found: Tensor = torch.autograd.grad(product.square().sum(), (values, operand))[which]
    return found


def counted(launch: Callable[..., None], kernel: Any, *arguments: Any, **constants: Any) -> None:
    """Launch a kernel and count it by name."""
    launches[getattr(kernel, "fn", kernel).__name__] += 1
    launch(kernel, *arguments, **constants)


COMPARISONS = {"spmv": compare_vectors, "spmm": compare_matrices, "sddmm": compare_samples}

if __name__ == "__main__":
    operation, device, size = sys.argv[1], torch.device(sys.argv[2]), int(sys.argv[3])
    quick = sys.argv[4:] == ["quick"]
    launches: Counter[str] = Counter()
    for module in (spmm_kernels, sddmm_kernels):
        module._launch = partial(counted, module._launch)
    if INTERPRETED:
        # So rows small enough for the interpreter are cut into pieces too.
        spmm_kernels._PIECE, spmm_kernels._SHORT = 16, 4
    report: dict[str, dict[str, str]] = {}
    for name, dense in matrices(size).items():
        # All types on one matrix, single precision on the others.
        for dtypes in DTYPES if name == "one dense row" else DTYPES[:1]:
            key = f"{name} {dtypes[0]} {dtypes[1]}"
            if not quick or key in QUICK or (operation == "spmv" and name == "stencil"):
                report[key] = COMPARISONS[operation](dense.to(device), dtypes)
    if operation == "spmv":
        report["long rows"] = compare_long_rows(long_rows().to(device))
        # Rows of many parts, which a separate program sums.
        plan._NARROW_PARTS = 2
        report["rows of many parts"] = compare_long_rows(long_rows().to(device), ("adaptive", "merge"))
    if operation == "spmm":
        report["gradients"] = compare_gradients(matrices(size)["one dense row"].to(device))
    print(json.dumps({"interpreted": INTERPRETED, "launches": launches, "cases": report}))
