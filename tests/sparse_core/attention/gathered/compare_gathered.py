"""Compare the kernels of gathered attention with float64 and with torch on one device; prints a JSON report.

Run on its own by test_gathered_triton.py, because Triton decides at import whether it interprets kernels.
For each case and tensor the report has the largest error, that of torch in the same type, and the largest
number.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from sparse_core.attention.gathered import gradient, reference
from sparse_core.attention.gathered import triton as kernels
from sparse_core.attention.gathered.api import gathered_attention
from sparse_core.attention.gathered.kernels_triton import forward_kernel
from tests.sparse_core.oracles.poisoned_memory import poisoned_memory

NAMES = ("out", "lse", "q", "k", "v")


class Case(NamedTuple):
    batch: int
    heads: int
    key_heads: int
    list_heads: int
    queries: int
    keys: int
    listed: int
    dim: int


# Small tiles, so that lists take several steps and keys several parts.
SMALL = {
    "own lists": (Case(2, 4, 2, 4, 2, 5, 11, 16), torch.float32, torch.int32),
    "own lists, half": (Case(1, 2, 1, 2, 5, 9, 6, 64), torch.float16, torch.int64),
    "one list, row by row": (Case(1, 4, 2, 1, 5, 9, 6, 24), torch.float32, torch.int64),
    "one list, filled up": (Case(2, 4, 2, 1, 2, 9, 20, 24), torch.float16, torch.int32),
    "one list, one head each": (Case(1, 2, 2, 1, 4, 3, 9, 96), torch.float32, torch.int64),
    "one list, many heads": (Case(1, 18, 1, 1, 2, 7, 20, 16), torch.float32, torch.int64),
    "one list, blocks of heads": (Case(1, 68, 1, 1, 1, 3, 5, 16), torch.float16, torch.int64),
    "one key": (Case(1, 2, 1, 2, 9, 1, 5, 16), torch.float32, torch.int32),
    "one slot": (Case(1, 2, 1, 1, 1, 4, 1, 96), torch.float16, torch.int64),
    "no slot": (Case(1, 2, 1, 1, 3, 4, 0, 16), torch.float32, torch.int64),
}
LARGE = {
    f"{name}, {dtype}": (case, dtype, torch.int64 if case.listed % 2 else torch.int32)
    for name, case in {
        "own lists": Case(2, 16, 16, 16, 300, 500, 64, 64),
        "own lists, shared keys": Case(2, 8, 2, 8, 301, 1000, 33, 128),
        "one list, filled up": Case(2, 16, 4, 1, 257, 333, 100, 128),
        "one list, two heads": Case(1, 4, 2, 1, 500, 77, 17, 256),
        "one list, one head each": Case(1, 8, 8, 1, 500, 200, 40, 96),
        "one list, many heads": Case(1, 40, 2, 1, 111, 99, 65, 64),
        "one list, blocks of heads": Case(1, 80, 1, 1, 50, 60, 16, 80),
        "few keys, parts": Case(1, 4, 2, 4, 2000, 3, 16, 16),
        "one key": Case(1, 2, 1, 2, 700, 1, 5, 24),
        "one slot": Case(1, 2, 1, 2, 1, 40, 1, 40),
        "many numbers": Case(1, 2, 2, 2, 100, 40000, 128, 64),
        "widest": Case(1, 2, 2, 2, 100, 300, 128, 256),
    }.items()
    for dtype in (torch.float16, torch.bfloat16, torch.float32)
}


def operands(
    case: Case, dtype: torch.dtype, index_dtype: torch.dtype, device: torch.device
) -> tuple[tuple[Tensor, ...], Tensor]:
    """q, k, v and lists with repeated keys, empty slots, and one query without keys."""
    generator = torch.Generator().manual_seed(sum(case))
    sizes = ((case.heads, case.queries), (case.key_heads, case.keys), (case.key_heads, case.keys))
    # Rows of different heads are adjacent, as a projection stores them.
    made = (torch.randn(case.batch, n, heads, case.dim, generator=generator) for heads, n in sizes)
    tensors = tuple(one.to(device, dtype).transpose(1, 2).requires_grad_() for one in made)
    shape = (case.batch, case.list_heads, case.queries, case.listed)
    index = torch.randint(-1, case.keys, shape, generator=generator)
    if case.queries > 1:
        index[:, :, case.queries // 2] = -1
    return tensors, index.to(device, index_dtype)


def torch_attention(q: Tensor, k: Tensor, v: Tensor, index: Tensor) -> Tensor:
    """Copies of the keys, and torch's own attention in the type of the operands."""
    batch, heads, queries, _ = q.shape
    index = index.long().expand(batch, heads, queries, -1)
    missing = index < 0
    empty = missing.all(3, keepdim=True)
    at = torch.arange(batch, device=q.device)[:, None, None, None]
    head = torch.arange(heads, device=q.device)[None, :, None, None] // (heads // k.shape[1])
    keys, values = (x[at, head, index.clamp(min=0)].flatten(0, 1) for x in (k, v))
    allowed = (~missing | empty).flatten(0, 1).unsqueeze(2)
    found = torch.nn.functional.scaled_dot_product_attention(
        q.flatten(0, 1).unsqueeze(2), keys, values, attn_mask=allowed
    )
    return found.reshape(q.shape).masked_fill(empty, 0.0)


def weighted(out: Tensor, lse: Tensor | None) -> Tensor:
    """Return a scalar to differentiate in which every part of the result has another weight."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(out.shape, generator=generator).to(out.device, out.dtype)
    total = (out * weight).sum(dtype=torch.float32 if out.dtype != torch.float64 else None)
    if lse is None:
        return total
    return total + (lse.masked_fill(lse == -math.inf, 0.0) * weight[..., 0]).sum()


def error(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference; infinite if only one is finite, or non-finite values differ."""
    found, expected = found.detach(), expected.detach()
    if found.shape != expected.shape:
        return math.inf
    same = (found == expected) | (found.isfinite() & expected.isfinite())
    if not bool(same.all()):
        return math.inf
    return float((found.double() - expected).nan_to_num(0.0).abs().max()) if found.numel() else 0.0


def compare(
    case: Case, dtype: torch.dtype, index_dtype: torch.dtype, device: torch.device, *, with_lse: bool
) -> dict[str, list[float]]:
    """Error, error of torch and largest number of every tensor."""
    tensors, index = operands(case, dtype, index_dtype, device)
    exact = [one.detach().double().requires_grad_() for one in tensors]
    out, lse = reference.gathered_attention(*exact, index, scale=case.dim**-0.5)
    expected = [out, lse, *torch.autograd.grad(weighted(out, lse if with_lse else None), exact)]
    out, lse = gathered_attention(*tensors, index, impl="triton", return_lse=True)
    assert out.dtype == dtype
    assert lse.dtype == torch.float32
    found = [out, lse, *torch.autograd.grad(weighted(out, lse if with_lse else None), tensors)]
    errors = [error(one, other) for one, other in zip(found, expected, strict=True)]
    theirs = [0.0] * 5
    if case.listed and not with_lse:
        out = torch_attention(*tensors, index)
        low = [out, lse, *torch.autograd.grad(weighted(out, None), tensors)]
        theirs = [error(one, other) for one, other in zip(low, expected, strict=True)]
    if case.listed and with_lse and dtype == torch.float32:
        # Torch has no gradient of lse; use the reference in the same dtype.
        out, lse = reference.gathered_attention(*tensors, index, scale=case.dim**-0.5)
        low = [out, lse, *torch.autograd.grad(weighted(out, lse), tensors)]
        theirs = [error(one, other) for one, other in zip(low, expected, strict=True)]
    largest = [
        float(one.detach().nan_to_num(0.0, 0.0, 0.0).abs().max()) if one.numel() else 0.0 for one in expected
    ]
    return {name: list(three) for name, *three in zip(NAMES, errors, theirs, largest, strict=True)}


def empty_queries(device: torch.device) -> bool:
    """Check that out is zero, lse minus infinity, no memory is read and no gradient is written."""
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 2, 3, 16, generator=generator).to(device) for _ in range(2))
    k[:, :, 0] = math.nan
    right = True
    for list_heads in (1, 2):
        tensors = [one.clone().requires_grad_() for one in (q, k, k)]
        index = torch.tensor([[1, -1, 2], [-1, -1, -1], [2, -1, 2]], device=device)
        out, lse = gathered_attention(
            *tensors, index.expand(1, list_heads, 3, 3), impl="triton", return_lse=True
        )
        (out.sum() + lse.exp().sum()).backward()
        right &= not bool(out[:, :, 1].any()) and bool((lse[:, :, 1] == -math.inf).all())
        right &= bool(out.isfinite().all()) and all(bool(one.grad.isfinite().all()) for one in tensors)
        right &= not bool(tensors[0].grad[:, :, 1].any()) and not bool(tensors[1].grad[:, :, 0].any())
    return right


def out_of_range(device: torch.device) -> bool:
    """Check that numbers out of range give NaN for their query only, also if heads share the list."""
    right = True
    for heads, dtype in ((1, torch.float32), (2, torch.float16)):
        q, k = torch.ones(1, heads, 3, 16, device=device).to(dtype), torch.ones(1, 1, 4, 16, device=device)
        for number in (4, -2, 2**40):
            index = torch.tensor([[[[0, 1], [2, number], [-1, -1]]]], device=device)
            k = k.to(dtype)
            out, lse = kernels.forward(q, k, k, index, 1.0)
            grads = kernels.backward(out, None, q, k, k, index, out, lse, 1.0, (True, True, True))
            assert grads.q is not None
            for spoilt in (out, lse[..., None], grads.q):
                right &= bool(spoilt[:, :, 1].isnan().all()) and bool(
                    spoilt[:, :, ::2].nan_to_num().isfinite().all()
                )
                right &= not bool(spoilt[:, :, ::2].isnan().any())
    return right


def selected_gradients(device: torch.device) -> bool:
    """Check that a gradient has the same bits alone and with others, and if only out or lse is used."""
    tensors, index = operands(Case(1, 2, 1, 2, 4, 5, 5, 16), torch.float32, torch.int64, device)
    right = True
    for use in (0, 1):

        def total(chosen: Any, use: int = use) -> Tensor:
            result = gathered_attention(*chosen, index, impl="triton", return_lse=True)[use]
            return result.masked_fill(result == -math.inf, 0.0).square().sum()

        every = torch.autograd.grad(total(tensors), tensors, allow_unused=True)
        for i in range(3):
            chosen = [one if i == j else one.detach() for j, one in enumerate(tensors)]
            alone = torch.autograd.grad(total(chosen), chosen[i])[0]
            right &= torch.equal(alone, every[i])
        right &= use == 0 or not bool(every[2].any())
    return right


def views(device: torch.device) -> bool:
    """Check strides with and without a copy, an expanded index and an expanded gradient."""
    generator = torch.Generator().manual_seed(0)
    wide = torch.randn(1, 2, 3, 32, generator=generator).to(device)
    index = torch.randint(0, 3, (1, 1, 1, 4), generator=generator).to(device).expand(1, 2, 3, 4)
    right = True
    for q in (wide[..., 3:19], wide[..., ::2], wide[..., :16], wide[:1, :, :, 16:]):
        results = []
        for operand, numbers in ((q, index), (q.contiguous(), index.contiguous())):
            leaf = operand.detach().requires_grad_()
            out = gathered_attention(leaf, leaf, leaf, numbers, impl="triton")
            results.append((out, torch.autograd.grad(out.sum(), leaf)[0]))
        # Other strides may change the order of sums.
        right &= all(torch.allclose(*pair, rtol=1e-5, atol=1e-6) for pair in zip(*results, strict=True))
    return right


def compiled(device: torch.device) -> bool:
    """Check that a compiled function gives the same bits, forward and backward."""
    tensors, index = operands(Case(1, 2, 1, 1, 3, 4, 5, 16), torch.float32, torch.int64, device)

    def loss(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out, lse = gathered_attention(q, k, v, index, impl="triton", return_lse=True)
        return (out.square().sum() + lse.exp().sum()) * 2

    traced = torch.compile(loss, backend="aot_eager", fullgraph=True)
    results = []
    for function in (loss, traced):
        value = function(*tensors)
        some = torch.autograd.grad(function(tensors[0].detach(), *tensors[1:]), tensors[1:])
        results.append([value, *torch.autograd.grad(value, tensors), *some])
    right = all(torch.equal(one, other) for one, other in zip(*results, strict=True))
    checks = torch.library.opcheck(
        gradient.gathered_attention_op, (*tensors, index, 0.3), test_utils=("test_schema", "test_faketensor")
    )
    return right and set(checks.values()) == {"SUCCESS"}


def once(device: torch.device) -> bool:
    """Check that a second derivative raises."""
    tensors, index = operands(Case(1, 1, 1, 1, 1, 2, 2, 16), torch.float32, torch.int64, device)
    out = gathered_attention(*tensors, index, impl="triton")
    found = torch.autograd.grad(out.square().sum(), tensors[0], create_graph=True)[0]
    try:
        found.sum().backward()
    except RuntimeError as refusal:
        return "once_differentiable" in str(refusal)
    return False


if __name__ == "__main__":
    interpreted = not isinstance(forward_kernel, triton.JITFunction)
    device = torch.device(sys.argv[1])
    checks = {"compiled": compiled(device)}
    with poisoned_memory():
        if interpreted:
            kernels._PART_ROWS, kernels._WARP_BYTES, kernels._BACKWARD_WARP_BYTES = 8, 512, 512
        checks["empty queries"] = empty_queries(device)
        checks["out of range"] = out_of_range(device)
        checks["selected gradients"] = selected_gradients(device)
        checks["views"] = views(device)
        checks["once"] = once(device)
        report = {}
        for number, (name, case) in enumerate((SMALL if interpreted else LARGE).items()):
            for with_lse in [bool(number % 2)] if interpreted else (False, True):
                report[f"{name}, {case[1]}{', lse' * with_lse}"] = compare(*case, device, with_lse=with_lse)
    print(json.dumps({"interpreted": interpreted, "cases": report, "checks": checks}))
