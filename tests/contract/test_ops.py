"""Every implementation of every op: odd sizes, nothing, poisoned memory, gradients, the same bits again."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from triton_scripts import run_script

SCRIPT = Path(__file__).with_name("compare_ops.py")
#: Of a GPU alone, and of a library or a processor's instructions that need not be there.
NOT_ON_A_CPU = {("nm_linear", "vendor"), ("nm_linear", "cuda"), ("sparse_attention", "cuda")}
OPTIONAL = {
    ("nm_linear", "cpu"),
    ("sddmm", "cpu"),
    ("sparse_attention", "fa4"),
    ("spmm", "cpu"),
}


def check(report: dict[str, Any], may_refuse: Callable[[str, str], bool]) -> None:
    """Every op has an example, and every implementation runs as the reference does or says why it cannot."""
    assert [name for name, found in report["ops"].items() if found is None] == []
    assert report["examples"] == sorted(report["ops"])
    wrong, ran = {}, 0
    for name, op in report["ops"].items():
        assert op["gradient"], f"{name}: the example and the op disagree on whether there is a gradient"
        for impl, sizes in op["wrong"].items():
            refused = {text for text in sizes.values() if text.startswith("refused")}
            if refused and may_refuse(name, impl):
                assert all(f"impl={impl!r} " in text and " needs " in text for text in refused)
                continue
            ran += 1
            # One right-hand side is fused, not none.
            empty = {"0"} if (name, impl) == ("cg", "triton") else set()
            wrong |= {f"{name} {impl} {size}": text for size, text in sizes.items()
                      if text and size not in empty}  # fmt: skip
    assert wrong == {}
    assert ran >= 40


def test_interpreted_and_plain_implementations(repository: Path) -> None:
    report = run_script(SCRIPT, repository, "cpu", "quick", interpret=True)
    check(report, lambda name, impl: (name, impl) in NOT_ON_A_CPU | OPTIONAL)


@pytest.mark.slow
def test_all_sizes(repository: Path) -> None:
    report = run_script(SCRIPT, repository, "cpu", interpret=True)
    check(report, lambda name, impl: (name, impl) in NOT_ON_A_CPU | OPTIONAL)


@pytest.mark.gpu
def test_compiled_implementations(repository: Path, cuda: torch.device) -> None:
    report = run_script(SCRIPT, repository, str(cuda), interpret=False)
    check(report, lambda name, impl: impl != "triton")


def test_a_name_that_cannot_run_raises_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # In this process, whose Triton compiles.
    pytest.importorskip("triton")
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "cpu", "quick", "refused"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    for name, op in report["ops"].items():
        impls = ", ".join(("auto", *op["wrong"]))
        for absent, text in op["names"].items():
            if absent == "fast":
                assert text == f"ValueError: impl must be one of {impls}; got 'fast'"
            else:
                lacks = f"{name} has no {absent} implementation: impl is one of {impls}"
                assert text == f"ImplementationError: {lacks}"
        for size, text in op["wrong"].get("triton", {}).items():
            # Where there is nothing to do, nothing need run.
            assert size == "0" or text.startswith(
                f"refused: {name}: impl='triton' needs CUDA tensors, got cpu"
            )
