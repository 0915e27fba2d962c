"""Compare all implementations of every op with the reference on one device; prints a JSON report.

Run on its own by test_ops.py, because Triton decides at import whether it interprets kernels.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from examples import EXAMPLES, Example
from sparse_core.errors import ImplementationError
from sparse_core.kernels.op import Impl, Op, ops
from tests.sparse_core.oracles.poisoned_memory import poisoned_memory
from tests.sparse_core.oracles.spconv_on_cpu import leave_out_gpu_kernels

DEVICE = torch.device(sys.argv[1])
ROOT = Path(__file__).parents[2]


def load_ops() -> None:
    """Import the modules that declare an op."""
    for name in ("sparse_core", "perception", "memory"):
        for path in sorted((ROOT / name).rglob("*.py")):
            if re.search(r"\bOp\(", path.read_text(encoding="utf-8")):
                importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def results(example: Example, impl: str, inputs: Sequence[Tensor]) -> list[Tensor]:
    """What an implementation gives, then the gradients of a weighted sum of it."""
    count = example.differentiated
    leaves = [one.clone().requires_grad_(number < count) for number, one in enumerate(inputs)]
    found = list(example.run(impl, *leaves))
    if not count:
        return found
    weights = [torch.linspace(0.5, 1.5, one.numel()).to(one.device).view_as(one) for one in found]
    sums = [(one * weight).sum() for one, weight in zip(found, weights, strict=True) if one.requires_grad]
    gradients = torch.autograd.grad(sums, leaves[:count], allow_unused=True) if sums else []
    return [*(one.detach() for one in found), *gradients]


def differs(found: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float) -> str:
    """What is wrong; nothing where they agree."""
    if len(found) != len(expected):
        return f"{len(found)} results for {len(expected)}"
    for number, (mine, right) in enumerate(zip(found, expected, strict=True)):
        if (mine is None) != (right is None):
            return f"result {number}: a gradient is missing"
        if mine is None:
            continue
        if mine.dtype != right.dtype or mine.shape != right.shape:
            return f"result {number}: {mine.dtype} {tuple(mine.shape)} for {right.dtype} {tuple(right.shape)}"
        if not right.is_floating_point() and not torch.equal(mine, right):
            return f"result {number}: other whole numbers"
        finite = right[right.isfinite()].abs()
        scale = max(1.0, float(finite.max())) if finite.numel() else 1.0
        if not torch.allclose(mine, right, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            return f"result {number}: off by {float((mine.double() - right.double()).abs().max())}"
    return ""


def bits(tensor: Tensor | None) -> bytes:
    """The bytes of a tensor, in which NaN equals itself."""
    if tensor is None:
        return b""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@contextmanager
def watched(op: Op) -> Iterator[set[str]]:
    """The implementations that are chosen meanwhile."""
    chosen, choose = set(), op.choose

    def noted(*case: Any) -> str:
        chosen.add(name := choose(*case))
        return name

    op.choose = noted  # type: ignore[method-assign]
    try:
        yield chosen
    finally:
        del op.choose


def compare(op: Op, example: Example, impl: str, sizes: Sequence[int]) -> dict[str, str]:
    """What is wrong by size; ``refused`` where the implementation cannot run."""
    wrong = {}
    for size in sizes:
        inputs = [one.to(DEVICE) for one in example.inputs(size)]
        expected = results(example, "reference", inputs)
        try:
            with watched(op) as chosen, poisoned_memory():
                found = results(example, impl, inputs)
            # The interpreter runs one program after the other, so that another run gives the same.
            interpreted = impl == "triton" and DEVICE.type == "cpu"
            again = found if interpreted else results(example, impl, inputs)
        except ImplementationError as error:
            if "no gradient" in str(error):
                return compare(op, example._replace(differentiated=0), impl, sizes)
            wrong[str(size)] = f"refused: {error}"
            continue
        text = differs(found, expected, example.tolerance)
        if chosen - {impl}:
            text += f" ran {sorted(chosen)}"
        # cuSPARSE may add in another order from call to call.
        if [*map(bits, again)] != [*map(bits, found)] and not (impl == "vendor" and DEVICE.type == "cuda"):
            text += " another run gives other bits"
        wrong[str(size)] = text
    return wrong


def refusals(op: Op, example: Example) -> dict[str, str]:
    """The exceptions that names raise which the op has not."""
    inputs = [one.to(DEVICE) for one in example.inputs(example.sizes[-1])]
    found = {}
    for name in ("fast", *sorted(set(get_args(Impl)) - {"auto", *op.implementations})):
        try:
            example.run(name, *inputs)
            found[name] = "ran"
        except (ImplementationError, ValueError) as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    leave_out_gpu_kernels()
    quick = "quick" in sys.argv[2:]
    # Without an interpreter, only what refuses to run is of interest.
    refused = "refused" in sys.argv[2:]
    load_ops()
    report: dict[str, Any] = {"examples": sorted(EXAMPLES), "ops": {op.name: None for op in ops()}}
    for op in ops():
        if op.name in EXAMPLES:
            example = EXAMPLES[op.name]
            sizes = (
                [size for size in example.sizes if size in (0, 7)] or example.sizes[:1]
                if quick
                else example.sizes
            )
            report["ops"][op.name] = {
                "gradient": op.gradient == bool(example.differentiated),
                "names": refusals(op, example),
                "wrong": {
                    impl: compare(op, example, impl, sizes) if impl == "triton" or not refused else {}
                    for impl in op.implementations
                },
            }
    print(json.dumps(report))
