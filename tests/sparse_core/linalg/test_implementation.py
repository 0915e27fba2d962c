from __future__ import annotations

import pytest
import torch

from sparse_core.errors import ImplementationError
from sparse_core.kernels.op import Op
from sparse_core.linalg.spgemm.api import SPGEMM
from sparse_core.linalg.spmm.api import SPMM
from sparse_core.linalg.spmv.api import SPMV

SINGLE, HALF, COMPLEX = torch.float32, torch.bfloat16, torch.complex64


@pytest.mark.parametrize(
    ("op", "device", "dtype", "triton", "expected"),
    [
        (SPMV, "cuda", SINGLE, True, "triton"),
        (SPMM, "cuda", HALF, True, "triton"),
        (SPGEMM, "cuda", SINGLE, True, "vendor"),
        (SPMV, "cuda", COMPLEX, True, "vendor"),
        (SPMM, "cuda", SINGLE, False, "vendor"),
        (SPMV, "cpu", SINGLE, True, "vendor"),
        (SPMM, "cpu", COMPLEX, True, "vendor"),
        (SPMV, "cpu", HALF, True, "reference"),
        (SPGEMM, "cpu", HALF, True, "reference"),
        (SPGEMM, "mps", SINGLE, True, "reference"),
    ],
)
def test_automatic_choice(
    op: Op[torch.dtype],
    device: str,
    dtype: torch.dtype,
    triton: bool,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sparse_core.kernels.op.module_available", lambda name: triton)
    assert op.choose("auto", torch.device(device), dtype) == expected


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_the_reference_runs_everywhere(device: str) -> None:
    assert SPMV.choose("reference", torch.device(device), HALF) == "reference"


@pytest.mark.parametrize(
    ("impl", "device", "dtype", "message"),
    [
        ("vendor", "mps", SINGLE, "does not support mps"),
        ("vendor", "cpu", HALF, r"does not support torch.bfloat16 on a CPU"),
        ("triton", "cuda", COMPLEX, "does not support torch.complex64"),
    ],
)
def test_named_implementations_that_cannot_run(
    impl: str, device: str, dtype: torch.dtype, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparse_core.kernels.op.module_available", lambda name: True)
    with pytest.raises(ImplementationError, match=f"spmm: impl={impl!r} {message}"):
        SPMM.choose(impl, torch.device(device), dtype)
