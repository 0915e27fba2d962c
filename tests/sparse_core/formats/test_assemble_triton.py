from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from triton_scripts import compare_both_ways, interpreted_and_compiled

from sparse_core.formats import assemble_csr

SCRIPT = Path(__file__).with_name("compare_assemble.py")
#: Facts of a case that must hold.
AGREEMENTS = ("row_ptr", "col", "values", "repeatable", "gradient", "own memory")


def check(report: dict[str, Any]) -> None:
    cases = report["many"]
    assert len(cases) == 16
    for path in ("few", "many"):
        for name, case in report[path].items():
            assert all(case[fact] for fact in AGREEMENTS), (path, name, case)
            assert case["stored"] == cases[name]["stored"]
        refused = report["refusals"][path]
        assert len(refused) == 4
        assert refused[0] == "row[1] = 5 is outside the matrix of 3 rows"
        assert refused[1] == "col[2] = -3 is outside the matrix of 4 columns"
        assert refused[3] == f"row[0] = {2**32} is outside the matrix of 3 rows"
    # Each runs twice: five kernels find the structure, one sums.
    assert cases["sorted, distinct"]["launches"] == 10
    assert cases["sorted with duplicates"]["launches"] == 12
    # Rows too long for a kernel are counted again; complex values take one more pass.
    assert cases["long rows"]["launches"] == 14
    assert cases["complex64"]["launches"] >= 14
    assert cases["one cell"]["stored"] == 1
    assert cases["duplicates"]["stored"] == cases["sorted with duplicates"]["stored"]
    # Few entries, each twice: one kernel reads the order sorted by torch, one sums.
    assert report["few"]["distinct"]["launches"] == 2
    assert report["few"]["duplicates"]["launches"] == 4
    assert report["few"]["complex64"]["launches"] == 6


@interpreted_and_compiled
def test_kernels_equal_the_reference(interpret: bool, repository: Path) -> None:
    report = compare_both_ways(SCRIPT, repository, interpret=interpret, sizes=(40, 300_000))
    check(report)


@pytest.mark.gpu
def test_auto_takes_triton_on_cuda(cuda: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from sparse_core.formats.assemble import reference

    index = torch.tensor([1, 0, 1], device=cuda)
    monkeypatch.setattr(reference, "assemble", lambda *_, **__: pytest.fail("the reference ran"))
    made = assemble_csr(index, index, torch.ones(3, device=cuda), (2, 2))
    assert made.values.tolist() == [1.0, 2.0]


@pytest.mark.gpu
def test_vendor_agrees_on_cuda(cuda: torch.device) -> None:
    generator = torch.Generator(cuda).manual_seed(0)
    row, col = torch.randint(0, 300, (2, 20_000), generator=generator, device=cuda)
    values = torch.randn(20_000, generator=generator, device=cuda, requires_grad=True)
    left = assemble_csr(row, col, values, (300, 300), impl="vendor")
    right = assemble_csr(row, col, values, (300, 300), impl="reference")
    assert torch.equal(left.row_ptr, right.row_ptr)
    assert torch.equal(left.col, right.col)
    torch.testing.assert_close(left.values, right.values)
    upstream = torch.randn_like(left.values)
    gradients = [torch.autograd.grad(made.values, values, upstream)[0] for made in (left, right)]
    assert torch.equal(*gradients)


@pytest.mark.gpu
def test_scipy_agrees_on_cuda(cuda: torch.device) -> None:
    pytest.importorskip("triton")
    import scipy.sparse

    generator = torch.Generator().manual_seed(1)
    row = torch.randint(0, 50_000, (400_000,), generator=generator, dtype=torch.int32)
    col = torch.randint(0, 40, (400_000,), generator=generator, dtype=torch.int32)
    values = torch.randn(400_000, generator=generator, dtype=torch.float64)
    made = assemble_csr(row.to(cuda), col.to(cuda), values.to(cuda), (50_000, 40), impl="triton")
    matrix = scipy.sparse.coo_array((values.numpy(), (row.numpy(), col.numpy())), shape=(50_000, 40)).tocsr()
    matrix.sum_duplicates()
    assert torch.equal(made.row_ptr.cpu(), torch.from_numpy(matrix.indptr))
    assert torch.equal(made.col.cpu(), torch.from_numpy(matrix.indices))
    torch.testing.assert_close(made.values.cpu(), torch.from_numpy(matrix.data))
