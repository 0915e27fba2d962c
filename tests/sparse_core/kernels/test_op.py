from __future__ import annotations

import json
import sys

import pytest
import torch

from sparse_core.errors import CapacityWarning, ImplementationError, SparseError
from sparse_core.kernels import op
from sparse_core.kernels.op import Implementation, Op, by_torch, by_triton, ops, table

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 1)


def small(kind: str, size: int) -> str | None:
    return None if size < 5 else f"takes fewer than 5, got {size} on {kind}"


@pytest.fixture
def solve(monkeypatch: pytest.MonkeyPatch) -> Op[int]:
    """An op of every kind of implementation, which leaves the table afterwards."""
    monkeypatch.setattr(op, "_OPS", {})
    monkeypatch.setattr(op, "module_available", lambda name: True)
    monkeypatch.setattr(op, "interpreted", lambda: False)
    return Op(
        "solve",
        "sparse_core.linalg.triangular",
        by_triton(needs="few", supports=small, prefers=lambda kind, size: size > 1),
        Implementation("vendor", "few", small, auto=("cpu",), module="wave"),
        Implementation("cuda", auto=()),
        by_torch(),
        gradient=True,
    )


@pytest.mark.parametrize(
    ("device", "size", "expected"),
    [
        (CUDA, 3, "triton"),
        (CUDA, 1, "reference"),
        (CUDA, 7, "reference"),
        (CPU, 3, "vendor"),
        (CPU, 7, "reference"),
    ],
)
def test_auto_takes_the_first_that_runs(
    solve: Op[int], device: torch.device, size: int, expected: str
) -> None:
    assert solve.choose("auto", device, size) == expected


def test_auto_without_triton(solve: Op[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op, "module_available", lambda name: False)
    assert solve.choose("auto", CUDA, 3) == "reference"
    with pytest.raises(ImplementationError, match="solve: impl='triton' needs triton, which is not"):
        solve.choose("triton", CUDA, 3)


def test_a_name_runs_or_raises_with_the_reason(solve: Op[int], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("triton", "cuda", "vendor", "reference"):
        assert solve.choose(name, CUDA, 1) == name
    with pytest.raises(ImplementationError, match="solve: impl='vendor' takes fewer than 5, got 5 on cuda"):
        solve.choose("vendor", CUDA, 5)
    with pytest.raises(ImplementationError, match="impl='triton' needs CUDA tensors, got cpu"):
        solve.choose("triton", CPU, 1)
    monkeypatch.setattr(op, "interpreted", lambda: True)
    assert solve.choose("triton", CPU, 1) == "triton"
    assert solve.choose("auto", CPU, 1) == "vendor"


def test_names_are_checked(solve: Op[int]) -> None:
    for name in ("auto", "triton", "cuda", "vendor", "reference"):
        solve.check(name)
    with pytest.raises(ValueError, match="one of auto, triton, vendor, cuda, reference; got 'fast'"):
        solve.choose("fast", CPU, 1)
    plain: Op[()] = Op("plain", "nowhere", by_torch(), gradient=False)
    with pytest.raises(ImplementationError, match="plain has no vendor implementation: impl is one"):
        plain.check("vendor")
    never: Op[()] = Op("never", "nowhere", Implementation("cuda", auto=("cuda",)), gradient=False)
    with pytest.raises(ImplementationError, match="never: no implementation runs on cpu"):
        never.choose("auto", CPU)


def test_modules_are_imported_when_they_are_asked_for(solve: Op[int]) -> None:
    loaded = "wave" in sys.modules
    assert solve.choose("vendor", CPU, 1) == "vendor"
    assert ("wave" in sys.modules) == loaded
    assert solve.pick("vendor", CPU, 1).__name__ == "wave"
    assert solve.load("reference").__name__ == "sparse_core.linalg.triangular.reference"


def test_the_table(solve: Op[int]) -> None:
    assert ops() == [solve]
    rows = json.loads(json.dumps(solve.rows()))
    assert [row["implementation"] for row in rows] == ["triton", "vendor", "cuda", "reference"]
    assert [row["auto"] for row in rows] == ["cuda", "cpu", "by name", "anywhere"]
    assert rows[0]["needs"] == "triton; CUDA, or TRITON_INTERPRET=1; few"
    lines = str(table()).splitlines()
    assert len(lines) == 6
    assert lines[0].split() == ["op", "implementation", "auto", "gradient", "needs"]
    assert lines[3].split() == ["solve", "vendor", "cpu", "yes", "few"]


def test_reasons(solve: Op[int]) -> None:
    reasons = solve.reasons(CPU, 9)
    assert reasons["vendor"] == reasons["triton"] == "takes fewer than 5, got 9 on cpu"
    assert reasons["cuda"] is reasons["reference"] is None


def test_exception_tree() -> None:
    assert issubclass(ImplementationError, SparseError)
    assert issubclass(ImplementationError, RuntimeError)
    assert issubclass(CapacityWarning, UserWarning)
    assert not issubclass(SparseError, ValueError)
