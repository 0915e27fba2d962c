"""Attention by FlashAttention-4: its tables, what it refuses, and its results where the package is."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from reference_attention import reference_attention
from torch import Tensor

from sparse_core.attention import (
    BlockPattern,
    fa4,
    from_block_mask,
    local_window,
    random_blocks,
    sparse_attention,
)
from sparse_core.attention.fa4 import BlockTables
from sparse_core.attention.operands import AttentionOptions, AttentionShape
from sparse_core.common.libraries import module_available
from sparse_core.errors import ImplementationError


def blocks(heads: int = 1) -> BlockPattern:
    """Blocks of 128 for 512 queries and 384 keys, with a row and a column without blocks."""
    mask = torch.rand(heads, 4, 3, generator=torch.Generator().manual_seed(1)) < 0.5
    mask[:, 0, 0] = mask[:, 3, 2] = True
    mask[:, 2] = mask[:, :, 1] = False
    return from_block_mask(mask, 128)


def operands(heads: int, key_heads: int, dim: int = 64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    sizes = ((heads, 512), (key_heads, 384), (key_heads, 384))
    return [torch.randn(2, *size, dim, generator=generator) for size in sizes]


@pytest.mark.parametrize("heads", [1, 4])
def test_tables_list_the_blocks_of_a_pattern(heads: int) -> None:
    for pattern in (blocks(heads), blocks(heads).transposed()):
        tables = BlockTables.of(pattern)
        assert BlockTables.of(pattern) is tables
        expected = pattern.to_block_mask().reshape(heads, pattern.block_rows, pattern.block_columns)
        found = torch.zeros_like(expected)
        for head in range(heads):
            for row in range(pattern.block_rows):
                count = int(tables.counts[0, head, row])
                found[head, row, tables.columns[0, head, row, :count].long()] = True
                assert tables.columns[0, head, row, :count].diff().gt(0).all()
        assert torch.equal(found, expected)
        assert all(one.dtype == torch.int32 and one.is_contiguous() for one in tables)
        assert not tables.none.any()
        assert tables.nowhere.shape == (1, heads, pattern.block_rows, 1)


class Sparsity(NamedTuple):
    """The library's record of blocks."""

    mask_block_cnt: Tensor
    mask_block_idx: Tensor
    full_block_cnt: Tensor
    full_block_idx: Tensor
    block_size: tuple[int, int]


def allowed(tables: Sparsity, heads: int, columns: int) -> Tensor:
    """Return the token mask (heads, queries, keys) of full blocks."""
    _, listed, rows = tables.full_block_cnt.shape
    mask = torch.zeros(listed, rows, columns, dtype=torch.bool)
    for head in range(listed):
        for row in range(rows):
            count = int(tables.full_block_cnt[0, head, row])
            mask[head, row, tables.full_block_idx[0, head, row, :count].long()] = True
    height, width = tables.block_size
    return mask.repeat_interleave(height, 1).repeat_interleave(width, 2).expand(heads, -1, -1)


@pytest.mark.parametrize(("heads", "key_heads", "listed"), [(2, 2, 1), (4, 2, 4)])
def test_the_library_gets_its_layouts(
    heads: int, key_heads: int, listed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in computes what the library documents, from the arguments that it gets."""
    both: list[Tensor] = []

    def flash_attn_func(
        q: Tensor, k: Tensor, v: Tensor, *, softmax_scale: float, return_lse: bool,
        block_sparse_tensors: Sparsity, block_sparse_tensors_bwd: Sparsity | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        assert return_lse
        mask = allowed(block_sparse_tensors, heads, k.shape[1] // 128)
        if block_sparse_tensors_bwd is not None:
            both.append(mask)
            assert torch.equal(allowed(block_sparse_tensors_bwd, heads, q.shape[1] // 128).mT, mask)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        k, v = (part.repeat_interleave(heads // key_heads, 1) for part in (k, v))
        scores = (q @ k.mT * softmax_scale).masked_fill(~mask, -torch.inf)
        weights = torch.softmax(scores, -1).nan_to_num(0.0)
        return (weights @ v).transpose(1, 2), torch.logsumexp(scores, -1)

    library, tables = ModuleType("flash_attn.cute"), ModuleType("flash_attn.cute.block_sparsity")
    library.flash_attn_func = flash_attn_func  # type: ignore[attr-defined]
    tables.BlockSparseTensorsTorch = Sparsity  # type: ignore[attr-defined]
    for name, module in {
        "flash_attn": ModuleType("flash_attn"),
        "flash_attn.cute": library,
        "flash_attn.cute.block_sparsity": tables,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    pattern = blocks(listed)
    q, k, v = operands(heads, key_heads)
    shape = AttentionShape(2, heads, key_heads, 512, 384, 64)
    expected = reference_attention(q, k, v, pattern, scale=0.2)
    found = fa4.attend(q, k, v, pattern, shape, AttentionOptions(0.2))
    torch.testing.assert_close(found.out, expected.out, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.lse, expected.lse, rtol=1e-5, atol=1e-5)
    assert not both
    fa4.attend(q.requires_grad_(), k, v, pattern, shape, AttentionOptions(0.2))
    assert len(both) == 1


@pytest.mark.parametrize(
    ("pattern", "dim", "words"),
    [
        (random_blocks(512, 0.5, 64), 64, "blocks of 128"),
        (random_blocks(500, 0.5, 128), 64, "multiples of 128"),
        (local_window(512, 100, 128), 64, "whole blocks"),
        (random_blocks(512, 0.5, 128), 192, "a dim of up to 128, got 192"),
    ],
)
def test_what_does_not_fit_is_refused(pattern: BlockPattern, dim: int, words: str) -> None:
    length = pattern.query_length
    q, k, v = (torch.zeros(1, 2, length, dim) for _ in range(3))
    shape = AttentionShape(1, 2, 2, length, length, dim)
    with pytest.raises(ImplementationError, match=f"impl='fa4' needs .*{words}"):
        fa4.attend(q, k, v, pattern, shape, AttentionOptions(0.2))


def test_a_missing_package_is_named() -> None:
    if module_available("flash_attn.cute"):
        pytest.skip("flash-attn-4 is installed")
    q, k, v = operands(2, 2)
    with pytest.raises(ImplementationError, match="needs flash-attn-4, which is not installed: pip install"):
        sparse_attention(q, k, v, blocks(), impl="fa4")


# The library passes its compiler an argument that the compiler does not know.
# The library's own.
@pytest.mark.filterwarnings("ignore:Argument aux_data:UserWarning", "ignore::DeprecationWarning")
@pytest.mark.gpu
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize(("heads", "key_heads", "listed"), [(2, 2, 1), (4, 2, 4)])
def test_results_on_a_gpu(cuda: torch.device, heads: int, key_heads: int, listed: int, dim: int) -> None:
    pytest.importorskip("flash_attn.cute", reason="needs flash-attn-4: pip install 'sparsight[fa4]'")
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs a GPU of the Hopper generation")
    pattern = blocks(listed).to(cuda)
    given = [one.to(cuda, torch.bfloat16).requires_grad_() for one in operands(heads, key_heads, dim)]
    gradient = torch.randn_like(given[0])
    results: dict[str, list[Any]] = {}
    for impl in ("fa4", "triton"):
        out, lse = sparse_attention(*given, pattern, impl=impl, return_lse=True)  # type: ignore[call-overload]
        results[impl] = [out, lse, *torch.autograd.grad(out, given, gradient)]
    for ours, theirs in zip(results["fa4"], results["triton"], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)
