"""Compare the Triton convolution with the reference on one device; prints a JSON report.

Run on its own by test_fixed_convolution_triton.py, because Triton decides at import whether it interprets
kernels. Arguments: the device, and a number of rows.
"""

from __future__ import annotations

import itertools
import json
import sys
from typing import Any

import torch
import triton
from torch import Tensor

from sparse_core.conv import SparseTensor, build_table, fixed_convolution, sparse_convolution
from sparse_core.conv.convolution import kernels_triton, launch_triton
from sparse_core.conv.convolution import triton as launches
from sparse_core.conv.convolution.plan import ConvolutionConfig

#: Every variant, and a tile so large that what is added at the end is loaded at the end.
CONFIGS = (
    ConvolutionConfig("pipelined", 16, 16, 16, 4, 3),
    ConvolutionConfig("preloaded", 16, 16, 16, 4, 3),
    ConvolutionConfig("unrolled", 16, 16, 64, 4, 3),
    ConvolutionConfig("pipelined", 128, 64, 16, 8, 3),
)
#: Input channels, output channels, taps, type, and whether everything is fused: odd sizes, one tap, whole
#: blocks, a number of taps beyond a power of two.
CASES = (
    (20, 24, 5, torch.float32, True),
    (33, 16, 1, torch.float16, False),
    (16, 7, 3, torch.float16, True),
    (32, 32, 9, torch.bfloat16, False),
)


def cases_here(device: torch.device) -> list[tuple[Any, ...]]:
    """All cases; the interpreter's products of bfloat16 are wrong, so they are left out on a CPU."""
    return [case for case in CASES if device.type == "cuda" or torch.bfloat16 not in case]


def forward_cases(rows: int, device: torch.device, *, most: int = 9) -> dict[str, float]:
    """Largest difference of each case, relative to the largest value; NaN stays NaN."""
    found = {}
    for config, case in itertools.product(CONFIGS, cases_here(device)[-most:]):
        name = f"{config.variant} {config.block_rows} rows {case[0]}-{case[1]}x{case[2]} {case[3]}"
        found[name] = _forward(rows, *case, config, device)
    return found


def named_cases(rows: int, device: torch.device) -> dict[str, float]:
    """:func:`forward_cases` with named rows of the residual and of the output."""
    found = {}
    for config, case in itertools.product(CONFIGS, cases_here(device)):
        if case[-1]:
            name = f"{config.variant} {config.block_rows} rows {case[0]}-{case[1]}x{case[2]} {case[3]}"
            found[name] = _forward(rows, *case, config, device, named=True)
    return found


def _forward(
    rows: int,
    channels_in: int,
    channels_out: int,
    taps: int,
    dtype: torch.dtype,
    full: bool,
    config: ConvolutionConfig,
    device: torch.device,
    named: bool = False,
) -> float:
    generator = torch.Generator().manual_seed(rows + taps)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    inputs = rows // 2 + 3
    features = normal(inputs + 4, channels_in)
    features[inputs:] = float("nan")
    weight = normal(taps, channels_in, channels_out) / (taps * channels_in) ** 0.5
    table = torch.randint(-inputs // 2, inputs, (taps, rows), generator=generator).int()
    table[:, ::7] = -1
    table[:, 1] = inputs + 1000  # beyond the inputs: missing as well
    used = rows - 5
    table[:, used:] = 2**31 - 1 if full else inputs + 1  # undefined beyond the count: NaN, or out of range
    table, count = table.to(device), torch.tensor([used], dtype=torch.int32, device=device)
    given: dict[str, Any] = {}
    if full:
        given = {
            "bias": normal(channels_out).float(),
            "residual": normal(rows, channels_out),
            "relu": True,
            "zero_empty": True,
        }
    kept = torch.arange(used, rows, device=device)
    if full and named:
        # Rows of the residual and of the output in another order, some of neither.
        order = torch.randperm(rows + 9, generator=generator).int()[:rows]
        order[::5] = -1
        given |= {"out_rows": order.to(device), "residual_rows": order.flip(0).to(device)}
        given["residual"] = normal(rows + 9, channels_out)
        written = order[:used][order[:used] >= 0].long()
        kept = torch.ones(rows + 9, dtype=torch.bool).index_fill(0, written, False).nonzero()[:, 0].to(device)
    results = []
    for impl in ("triton", "reference"):
        height = rows + 9 if full and named else rows
        out = torch.full((height, channels_out), 7.0, device=device, dtype=dtype)
        with torch.no_grad():
            options = {"impl": impl, "config": config}
            fixed_convolution(features, weight, table, count, out=out, **given, **options)
        if not bool((out[kept] == 7).all()):
            return float("inf")
        results.append(out.float())
    return float((results[0] - results[1]).abs().max() / results[1].abs().max())


def gradient_cases(device: torch.device, *, most: int = 4) -> dict[str, list[float]]:
    """Relative differences of output and gradients of maps of sparse tensors."""
    found = {}
    for dimensions, strided, (channels_in, channels_out), dtype in (
        (2, True, (5, 19), torch.float32),
        (3, False, (7, 4), torch.float32),
        (2, False, (12, 33), torch.float16),
        (2, True, (16, 8), torch.bfloat16),
    )[:most]:
        if dtype == torch.bfloat16 and device.type == "cpu":
            continue
        shape = (6, 7) if dimensions == 2 else (3, 4, 3)
        generator = torch.Generator().manual_seed(dimensions)
        cells = torch.rand((2, *shape), generator=generator).lt(0.4).nonzero().int()
        table = build_table(cells.to(device), shape, impl="reference")
        inputs = SparseTensor.from_table(torch.empty(len(table), 1, device=device), table, 2)
        kernel = (3,) * dimensions
        if strided:
            neighbours, _ = inputs.strided_table(
                kernel, (2,) * dimensions, (1,) * dimensions, impl="reference"
            )
        else:
            neighbours = inputs.submanifold_table(kernel)
        leaves = [
            torch.randn(len(table), channels_in, generator=generator),
            torch.randn(channels_out, *kernel, channels_in, generator=generator) / 5,
            torch.randn(channels_out, generator=generator),
        ]
        upstream = torch.randn(neighbours.rows.shape[1], channels_out, generator=generator)
        results = []
        for impl, kind in (("triton", dtype), ("reference", torch.float32)):
            given = [leaf.to(device, dtype).to(kind).requires_grad_() for leaf in leaves]
            output = sparse_convolution(given[0], given[1], neighbours, bias=given[2], impl=impl)
            gradients = torch.autograd.grad(output, given, upstream.to(device, dtype).to(kind))
            results.append([output.detach().float(), *(gradient.float() for gradient in gradients)])
        found[f"{dimensions}-D strided={strided} {channels_in}-{channels_out} {dtype}"] = [
            float((left - right).abs().max() / right.abs().max())
            for left, right in zip(*results, strict=True)
        ]
    return found


def main() -> None:
    """Print the report."""
    device, rows = torch.device(sys.argv[1]), int(sys.argv[2])
    report: dict[str, object] = {
        "interpreted": not isinstance(kernels_triton.convolve_kernel, triton.JITFunction),
        "forward": forward_cases(rows, device),
        "named": named_cases(rows, device),
        "gradients": gradient_cases(device),
    }
    # Offsets of 64 bits, as for tensors too large for a test.
    for module in (launches, launch_triton):
        vars(module)["is_wide"] = lambda *tensors: True
    report["wide"] = forward_cases(17, device, most=1)
    report["wide gradients"] = gradient_cases(device, most=1)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
