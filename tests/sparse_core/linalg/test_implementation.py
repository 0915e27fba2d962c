from __future__ import annotations

import pytest
import torch

from sparse_core.dispatch import Impl
from sparse_core.errors import ImplementationError
from sparse_core.linalg import implementation
from sparse_core.linalg.implementation import choose_implementation

SINGLE, HALF, COMPLEX = torch.float32, torch.bfloat16, torch.complex64


@pytest.mark.parametrize(
    ("device", "dtype", "triton", "prefers_vendor", "expected"),
    [
        ("cuda", SINGLE, True, False, "triton"),
        ("cuda", HALF, True, False, "triton"),
        ("cuda", SINGLE, True, True, "vendor"),
        ("cuda", COMPLEX, True, False, "vendor"),
        ("cuda", SINGLE, False, False, "vendor"),
        ("cpu", SINGLE, True, False, "vendor"),
        ("cpu", COMPLEX, True, False, "vendor"),
        ("cpu", HALF, True, False, "reference"),
        ("cpu", HALF, True, True, "reference"),
        ("mps", SINGLE, True, True, "reference"),
    ],
)
def test_automatic_choice(
    device: str,
    dtype: torch.dtype,
    triton: bool,
    prefers_vendor: bool,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(implementation, "module_available", lambda name: triton)
    chosen = choose_implementation("auto", torch.device(device), dtype, prefers_vendor=prefers_vendor)
    assert chosen == expected


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_the_reference_runs_everywhere(device: str) -> None:
    assert choose_implementation("reference", torch.device(device), HALF) == "reference"


@pytest.mark.parametrize(
    ("impl", "device", "dtype", "message"),
    [
        ("vendor", "mps", SINGLE, "no library for mps"),
        ("vendor", "cpu", HALF, r"no library for torch.bfloat16 on a CPU"),
        ("triton", "cuda", COMPLEX, r"no kernels for torch.complex64"),
    ],
)
def test_named_implementations_that_cannot_run(
    impl: Impl, device: str, dtype: torch.dtype, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparse_core.dispatch.module_available", lambda name: True)
    with pytest.raises(ImplementationError, match=message):
        choose_implementation(impl, torch.device(device), dtype)
