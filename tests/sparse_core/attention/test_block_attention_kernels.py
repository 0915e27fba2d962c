"""Kernels of block-sparse attention: the interpreter against the reference, and a GPU against float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from triton_scripts import run_script

from sparse_core.attention import (
    BlockPattern,
    bigbird,
    from_block_mask,
    from_token_mask,
    full,
    local_window,
    random_blocks,
    sparse_attention,
    top_k_blocks,
)
from sparse_core.attention.gpu import plan
from sparse_core.attention.gpu.plan import lists_of
from sparse_core.errors import ImplementationError

SCRIPT = Path(__file__).with_name("compare_block_attention.py")
REPOSITORY = Path(__file__).parents[3]
BIG = ("blocks of 128", "blocks of 64", "wide heads", "wide heads, small blocks", "one row of large blocks")
SMALL = ("one query", "odd lengths", "cross", "all blocks", "causal", "one row", "strides", "bigbird")
SMALL += ("not a power of two", "empty rows", "per head", "dropout", "ragged")
PARTS = ("out", "lse", "gradient of q", "gradient of k", "gradient of v")


def check(report: dict[str, list[float]], most: float) -> None:
    wrong = [
        f"{case}: {part} is off by {error:.1e}"
        for case, errors in report.items()
        for part, error in zip(PARTS, errors, strict=True)
        if not error <= most
    ]
    assert not wrong


def test_interpreted() -> None:
    report = run_script(SCRIPT, REPOSITORY, "float32", *SMALL, interpret=True)
    assert len(report) == len(SMALL)
    check(report, 5e-6)


def test_interpreted_in_half_precision() -> None:
    report = run_script(SCRIPT, REPOSITORY, "float16", "bigbird", "per head", interpret=True)
    check(report, 4e-3)


@pytest.mark.slow
def test_interpreted_large_blocks() -> None:
    report = run_script(SCRIPT, REPOSITORY, "float32", *BIG, "long rows", interpret=True)
    check(report, 5e-6)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "most"), [("float32", 5e-6), ("float16", 3e-3), ("bfloat16", 2e-2)])
def test_on_a_gpu(dtype: str, most: float, cuda: torch.device) -> None:
    names = [*BIG, "long rows", *SMALL]
    report = run_script(SCRIPT, REPOSITORY, dtype, *names, interpret=False)
    assert len(report) == len(names)
    check(report, most)


def test_long_rows_are_cut_and_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_processors", lambda device: 132)
    mask = torch.eye(300, dtype=torch.bool)
    mask[7] = True
    lists = lists_of(from_block_mask(mask, 16))
    work = lists.work_list(1, 2)
    assert work is not None
    unit, begin, end, slot = work.parts.unbind(dim=1)
    lengths = (end - begin).tolist()
    assert lengths == sorted(lengths, reverse=True)
    assert max(lengths) < 300
    cut = slot >= 0
    assert sorted(set(unit[cut].tolist())) == [7, 307]
    assert work.joins[:, 0].tolist() == [7, 307]
    for row, first, count in work.joins.tolist():
        pieces = [place for place in torch.argsort(slot).tolist() if first <= slot[place] < first + count]
        assert [int(begin[piece]) for piece in pieces[1:]] == [int(end[piece]) for piece in pieces[:-1]]
        assert int(begin[pieces[0]]) == 0
        assert int(end[pieces[-1]]) == 300
        assert {int(unit[piece]) for piece in pieces} == {row}
    assert work.slots == int(cut.sum())
    # All 600 rows are there.
    assert sorted(set(unit.tolist())) == list(range(600))


def test_short_rows_follow_head_by_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_processors", lambda device: 12)
    mask = torch.rand(40, 40, generator=torch.Generator().manual_seed(0)) < 0.2
    mask[:, 3] = False
    mask[3] = True
    work = lists_of(from_block_mask(mask, 64)).work_list(2, 8)
    assert work is not None
    unit, begin, end, _ = work.parts.unbind(dim=1)
    heads, lengths = unit // 40, end - begin
    first = int((unit % 40 == 3).sum())
    assert bool((unit[:first] % 40 == 3).all())
    assert heads[first:].tolist() == sorted(heads[first:].tolist())
    for head in range(16):
        of_head = lengths[first:][heads[first:] == head].tolist()
        assert of_head == sorted(of_head, reverse=True)
        assert len(of_head) == 39


def test_grouped_heads_share_a_row() -> None:
    lists = lists_of(local_window(640, 40, 32))
    work = lists.work_list(2, 4, 2)
    assert work is not None
    assert sorted(set(work.parts[:, 0].tolist())) == list(range(2 * 2 * 20))
    lengths = lists.row_lengths
    total = work.parts[:, 2] - work.parts[:, 1]
    assert int(total.sum()) == 8 * int(lengths.sum())


def test_full_blocks_come_before_those_with_masks() -> None:
    pattern = local_window(1000, 200, 64)
    lists = lists_of(pattern)
    bounds = lists.row_ptr.tolist()
    for row, middle in enumerate(lists.full_end.tolist()):
        first, last = bounds[row], bounds[row + 1]
        assert bool((lists.mask[first:middle] == -1).all())
        assert bool((lists.mask[middle:last] >= 0).all())
        reach = (lists.columns[first:middle] + 1) * 64
        assert bool((reach <= 1000).all())
        stored = pattern.columns[first:last].sort().values
        assert torch.equal(lists.columns[first:last].sort().values, stored)
    assert bool(lists.masks[-1].all())


def test_bits_are_those_of_the_masks() -> None:
    masks = from_token_mask(torch.rand(160, 160, generator=torch.Generator().manual_seed(0)) < 0.5, 80)
    lists = lists_of(masks)
    words = lists.bits.long() & 0xFFFFFFFF
    key = torch.arange(80)
    found = words[:, :, key // 32] >> (key % 32) & 1
    assert torch.equal(found.bool(), lists.masks)


def test_a_selection_is_prepared_without_waiting() -> None:
    q = torch.randn(1, 2, 256, 32, generator=torch.Generator().manual_seed(0))
    for causal in (False, True):
        pattern = top_k_blocks(q, q, 0.4, block_size=32, causal=causal)
        stated = pattern.plans["row_lengths"]
        assert isinstance(stated, Tensor)
        assert torch.equal(stated, pattern.row_lengths().flatten().long())


def operands(
    cuda: torch.device, dtype: torch.dtype, pattern: BlockPattern, dim: int, heads: int = 4, group: int = 2
) -> list[Tensor]:
    generator = torch.Generator(cuda).manual_seed(0)
    lengths = (pattern.query_length, pattern.key_length, pattern.key_length)
    counts = (heads, heads // group, heads // group)
    return [
        torch.randn(2, count, length, dim, device=cuda, dtype=dtype, generator=generator).requires_grad_()
        for count, length in zip(counts, lengths, strict=True)
    ]


def exact(q: Tensor, k: Tensor, v: Tensor, pattern: BlockPattern, dtype: torch.dtype) -> Tensor:
    """Dense masked attention; float64 is the oracle, the type of q torch's own low precision."""
    group = q.shape[1] // k.shape[1]
    k, v = (part.to(dtype).repeat_interleave(group, dim=1) for part in (k, v))
    mask = pattern.to_token_mask()
    if dtype != torch.float64:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    scores = (q.double() @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~mask, -torch.inf)
    return torch.softmax(scores, dim=-1) @ v


@pytest.mark.gpu
@pytest.mark.parametrize("dim", [16, 64, 72, 128, 256])
@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_error_is_at_most_twice_that_of_torch(
    cuda: torch.device, dtype: torch.dtype, size: int, dim: int
) -> None:
    pattern = bigbird(1000, block_size=size, window=130, seed=1).to(cuda)
    q, k, v = operands(cuda, dtype, pattern, dim)
    gradient = torch.randn_like(q)
    results = {}
    for name, run in {
        "oracle": lambda: exact(q, k, v, pattern, torch.float64),
        "torch": lambda: exact(q, k, v, pattern, dtype),
        "ours": lambda: sparse_attention(q, k, v, pattern),
    }.items():
        out = run()
        found = torch.autograd.grad(out, (q, k, v), gradient.to(out.dtype))
        results[name] = [out.detach().double(), *(part.double() for part in found)]
    for ours, theirs, oracle in zip(results["ours"], results["torch"], results["oracle"], strict=True):
        scale = float(oracle.abs().max())
        least = 2e-6 * scale if dtype == torch.float32 else 0.0
        assert float((ours - oracle).abs().max()) <= 2 * float((theirs - oracle).abs().max()) + least


@pytest.mark.gpu
@pytest.mark.parametrize("impl", ["auto", "triton"])
@pytest.mark.parametrize("size", [64, 128])
def test_repeats_to_the_bit(cuda: torch.device, size: int, impl: str) -> None:
    mask = torch.rand(40, 40, generator=torch.Generator().manual_seed(0)) < 0.1
    mask[3] = mask[:, 5] = True
    pattern = from_block_mask(mask, size).to(cuda)
    q, k, v = operands(cuda, torch.bfloat16, pattern, 64)
    first = None
    for _ in range(5):
        pattern.plans.clear()
        torch.empty(1 << 26, device=cuda).fill_(float("nan"))
        out, lse = sparse_attention(q, k, v, pattern, impl=impl, return_lse=True)
        found = [out, lse, *torch.autograd.grad(out.float().sum() + lse.sum(), (q, k, v))]
        first = first or found
        assert all(torch.equal(ours, before) for ours, before in zip(found, first, strict=True))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # the one that is refused
@pytest.mark.parametrize("dim", [32, 64])
def test_in_a_cuda_graph(cuda: torch.device, dim: int) -> None:
    pattern = bigbird(8192, block_size=64, window=100, device=cuda)
    q, k, v = (part.detach() for part in operands(cuda, torch.bfloat16, pattern, dim))
    fresh = bigbird(8192, block_size=64, window=100, seed=9, device=cuda)
    graph = torch.cuda.CUDAGraph()
    sparse_attention(q, k, v, pattern)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        out = sparse_attention(q, k, v, pattern)
    other = torch.randn_like(q)
    expected = sparse_attention(other, k, v, pattern)
    q.copy_(other)
    graph.replay()
    assert torch.equal(out, expected)
    graph = torch.cuda.CUDAGraph()
    selected = sparse_attention(q, k, v, top_k_blocks(q, k, 0.3))
    with torch.cuda.graph(graph):
        out = sparse_attention(q, k, v, top_k_blocks(q, k, 0.3))
    graph.replay()
    assert torch.equal(out, selected)
    with pytest.raises(ImplementationError, match="once before"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        sparse_attention(q, k, v, fresh)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_waits_for_nothing(cuda: torch.device) -> None:
    pattern = bigbird(2000, block_size=64, window=100, device=cuda)
    q, k, v = operands(cuda, torch.bfloat16, pattern, 64)

    def work() -> None:
        out = sparse_attention(q, k, v, pattern)
        torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
        with torch.no_grad():
            selected = top_k_blocks(q, k, 0.2, block_size=64)
            sparse_attention(q, k, v, selected)

    work()  # the first call prepares
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        work()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a warning of torch's compiler
@pytest.mark.parametrize("dropout_p", [0.0, 0.2])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled(cuda: torch.device, backend: str, dropout_p: float) -> None:
    pattern = bigbird(300, block_size=64, window=100, device=cuda)
    q, k, v = operands(cuda, torch.float16, pattern, 64)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return sparse_attention(q * 2, k, v, pattern, dropout_p=dropout_p, seed=5 if dropout_p else None)

    compiled: Callable[..., Tensor] = torch.compile(run, fullgraph=True, backend=backend)
    gradient = torch.randn_like(q)
    found, expected = (
        (out.detach(), *torch.autograd.grad(out, (q, k, v), gradient))
        for out in (compiled(q, k, v), run(q, k, v))
    )
    for ours, theirs in zip(found, expected, strict=True):
        assert float((ours - theirs).abs().max()) <= 2e-3 * float(theirs.abs().max())


@pytest.mark.gpu
def test_very_long_sequences(cuda: torch.device) -> None:
    pattern = random_blocks(65_536, 0.002, 128, device=cuda)
    q, k, v = (part.detach()[:1] for part in operands(cuda, torch.bfloat16, pattern, 64, 2, 1))
    out = sparse_attention(q, k, v, pattern)
    rows = slice(40_000, 40_100)
    scores = q[:, :, rows].double() @ k.double().mT / 8
    block_row = pattern.to_block_mask()[torch.arange(40_000, 40_100, device=cuda) // 128]
    mask = block_row.repeat_interleave(128, dim=1)
    expected = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1) @ v.double()
    assert float((out[:, :, rows].double() - expected).abs().max()) <= 4e-3


@pytest.mark.gpu
def test_what_the_cuda_kernel_refuses(cuda: torch.device) -> None:
    pattern = full(64, block_size=32, device=cuda)
    q, k, v = operands(cuda, torch.bfloat16, pattern, 64)
    with pytest.raises(ImplementationError, match="blocks of 64 or 128"):
        sparse_attention(q, k, v, pattern, impl="cuda")
    assert sparse_attention(q, k, v, pattern).isfinite().all()


@pytest.mark.gpu
def test_nan_reaches_only_its_query(cuda: torch.device) -> None:
    pattern = local_window(512, 10, 64, device=cuda)
    for dim in (32, 64):
        q, k, v = (part.detach() for part in operands(cuda, torch.bfloat16, pattern, dim))
        q[0, 1, 100] = float("nan")
        out, lse = sparse_attention(q, k, v, pattern, return_lse=True)
        assert bool(out[0, 1, 100].isnan().all())
        assert bool(lse[0, 1, 100].isnan())
        assert int(out.isnan().any(dim=-1).sum()) == 1
