"""Attention with a new pattern in every call and grouped queries: ours against libraries that take a plan.

All sides choose the same blocks by the same scores. Each then makes what it reads (a pattern, a table or a
plan) and attends; both are part of the call.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.attention.exact import TOLERANCE, error_of_rows, relative_error
from benchmarks.attention.sides import CUDNN, FA4, FLEX, OURS, TORCH, finite, reason
from benchmarks.lib.graphs import call_microseconds, can_capture, microseconds
from benchmarks.lib.timing import Side, interleave, paired_ratio
from sparse_core.attention import BlockPattern, sparse_attention, top_k_blocks
from sparse_core.attention.fa4 import BlockTables, flash_with_tables
from sparse_core.attention.selection import block_scores

FLEX_FA4, FLASHINFER = "FlexAttention, FlashAttention-4", "FlashInfer"
BLOCK = 128
#: FlashInfer's workspace, as its manual asks for.
_WORKSPACE_BYTES = 256 << 20


class ChangingCell(NamedTuple):
    """What is measured: one sequence, a pattern for each head of the keys.

    Attributes:
        keep: share of the blocks of a row.
        length: of queries and keys.
        heads, key_heads: of queries, and of keys and values.
        dim: of a head.
        dtype: of the operands.
    """

    keep: float
    length: int
    heads: int = 32
    key_heads: int = 8
    dim: int = 128
    dtype: torch.dtype = torch.bfloat16

    @property
    def key(self) -> str:
        """Name on the command line."""
        return f"changing-{self.keep:g}-{self.length}"

    @property
    def kept(self) -> int:
        """Blocks of a row."""
        return max(1, round(self.keep * (self.length // BLOCK)))


class Operands(NamedTuple):
    """Queries (1, heads, length, dim), keys and values (1, key heads, length, dim)."""

    q: Tensor
    k: Tensor
    v: Tensor


Attend = Callable[[Operands, ChangingCell], Tensor]


def changing_cells(device: str, *, quick: bool) -> list[ChangingCell]:
    """Lengths and shares that are kept."""
    if device == "cpu":
        return [ChangingCell(0.25, 1024, 4, 2, 64, torch.float32)]
    lengths = (4096,) if quick else (4096, 16384, 65536)
    return [ChangingCell(keep, length) for keep in ((0.1,) if quick else (0.1, 0.25)) for length in lengths]


def measure_changing(
    cell: ChangingCell, device: torch.device, options: argparse.Namespace, notes: list[str]
) -> dict[str, Any]:
    """Compare all sides, then time them as they are called, and in CUDA graphs where they can be captured.

    Args:
        cell: what to measure.
        device: a GPU or the CPU.
        options: ``seed``, ``rounds`` and ``cell_s`` (seconds of a cell) of the command line.
        notes: takes what could not run.
    """
    given = _operands(cell, device, options.seed)
    runs: dict[str, Side] = {}
    errors: dict[str, float] = {}
    with torch.no_grad():
        expected = _ours(given, cell)
        pattern = _pattern(given, cell)
        keys, values = (part.repeat_interleave(cell.heads // cell.key_heads, 1) for part in given[1:])
        exact_error = error_of_rows([expected], given.q, keys, values, None, pattern, BLOCK)
        for name, attend in _sides(device).items():

            def run(attend: Attend = attend) -> Tensor:
                return attend(given, cell)

            try:
                found = run()
                if device.type == "cuda":
                    torch.cuda.synchronize()
            except Exception as failure:  # compilers raise all kinds
                if name == OURS:
                    raise
                notes.append(f"{name}, {cell.key}: {reason(failure)}")
                continue
            runs[name] = run
            if name not in (CUDNN, TORCH):
                errors[name] = relative_error(found, expected.float())
        errors[OURS] = max(errors[OURS], exact_error)
        called = interleave(
            runs, device, rounds=options.rounds, warmup=3, budget_s=options.cell_s, seed=options.seed
        )
        graphs = {name: run for name, run in runs.items() if device.type == "cuda" and can_capture(run)}
        in_graphs = call_microseconds(
            graphs, device, rounds=options.rounds, budget_s=options.cell_s, seed=options.seed
        )
    return {
        "key": cell.key,
        **cell._asdict(),
        "dtype": str(cell.dtype).removeprefix("torch."),
        "errors": {name: finite(error) for name, error in errors.items()},
        "agrees": all(error <= TOLERANCE[cell.dtype] for error in errors.values()),
        "microseconds": {name: microseconds([t * 1e3 for t in times]) for name, times in called.items()},
        "graph_microseconds": {name: microseconds(times) for name, times in in_graphs.items()},
        "over": {name: paired_ratio(called[name], called[OURS]) for name in runs if name != OURS},
        "graph_over": {
            name: paired_ratio(in_graphs[name], in_graphs[OURS]) for name in graphs if name != OURS
        },
    }


def _operands(cell: ChangingCell, device: torch.device, seed: int) -> Operands:
    generator = torch.Generator(device=device).manual_seed(seed)

    def normal(heads: int) -> Tensor:
        shape = (1, heads, cell.length, cell.dim)
        return torch.randn(shape, device=device, generator=generator).to(cell.dtype)

    return Operands(normal(cell.heads), normal(cell.key_heads), normal(cell.key_heads))


def _sides(device: torch.device) -> dict[str, Attend]:
    if device.type == "cpu":
        return {OURS: _ours, TORCH: _dense}
    return {
        OURS: _ours,
        CUDNN: _dense,
        FA4: _fa4,
        FLEX: partial(_flex, backend="TRITON"),
        FLEX_FA4: partial(_flex, backend="FLASH"),
        FLASHINFER: _flashinfer,
    }


def _pattern(given: Operands, cell: ChangingCell) -> BlockPattern:
    return top_k_blocks(given.q, given.k, cell.keep, block_size=BLOCK, per_key_head=True)


def _ours(given: Operands, cell: ChangingCell) -> Tensor:
    return sparse_attention(*given, _pattern(given, cell))


def _dense(given: Operands, cell: ChangingCell) -> Tensor:
    attend = torch.nn.functional.scaled_dot_product_attention
    if not given.q.is_cuda:
        return attend(*given, enable_gqa=True)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return attend(*given, enable_gqa=True)


def _best(given: Operands, cell: ChangingCell) -> Tensor:
    """The kept block columns of each block row, best first: (key heads, block rows, kept)."""
    scores = block_scores(given.q, given.k, BLOCK, per_key_head=True)
    return torch.sort(scores, dim=2, descending=True, stable=True).indices[:, :, : cell.kept]


def _columns(given: Operands, cell: ChangingCell) -> Tensor:
    """The kept block columns of each block row, ascending: (1, heads, block rows, kept) int32."""
    columns = torch.sort(_best(given, cell), dim=2).values.int()
    return columns.repeat_interleave(cell.heads // cell.key_heads, 0)[None].contiguous()


def _fa4(given: Operands, cell: ChangingCell) -> Tensor:
    columns = _columns(given, cell)
    counts = columns.new_full(columns.shape[:3], cell.kept)
    none = torch.zeros_like(counts)
    tables = BlockTables(none, none[..., None], counts, columns)
    return flash_with_tables(*given, tables, cell.dim**-0.5)[0]


def _flex(given: Operands, cell: ChangingCell, backend: str) -> Tensor:
    from torch.nn.attention.flex_attention import BlockMask

    kept = _columns(given, cell)
    # FlexAttention reads a list as long as a row.
    columns = kept.new_zeros((*kept.shape[:3], cell.length // BLOCK))
    columns[..., : cell.kept] = kept
    counts = kept.new_full(kept.shape[:3], cell.kept)
    mask = BlockMask.from_kv_blocks(
        torch.zeros_like(counts),
        torch.zeros_like(columns),
        counts,
        columns,
        BLOCK_SIZE=BLOCK,
        mask_mod=_everything,
        seq_lengths=(cell.length, cell.length),
        compute_q_blocks=False,
    )
    result: Tensor = _compiled_flex(backend)(*given, mask)
    return result


def _everything(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """A mask that leaves nothing out: without one, the backend of FlashAttention-4 ignores the blocks."""
    return (key >= 0) & (query >= 0)


@cache
def _compiled_flex(backend: str) -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Any) -> Tensor:
        kernel: Any = {"BACKEND": backend}
        out = flex_attention(q, k, v, block_mask=mask, enable_gqa=True, kernel_options=kernel)
        assert isinstance(out, Tensor)
        return out

    return torch.compile(attend, fullgraph=True, dynamic=False)


@cache
def _wrapper(device: torch.device) -> Any:
    from flashinfer import VariableBlockSparseAttentionWrapper

    return VariableBlockSparseAttentionWrapper(
        torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device=device)
    )


def _flashinfer(given: Operands, cell: ChangingCell) -> Tensor:
    wrapper = _wrapper(given.q.device)
    best = _best(given, cell)
    mask = torch.zeros((*best.shape[:2], cell.length // BLOCK), dtype=torch.bool, device=best.device)
    mask.scatter_(2, best, True)
    sizes = torch.full(mask.shape[:2], BLOCK, dtype=torch.int32, device=mask.device)
    wrapper.plan(mask, sizes, sizes, cell.heads, cell.key_heads, cell.dim, q_data_type=cell.dtype)
    out: Tensor = wrapper.run(given.q[0], given.k[0], given.v[0])
    return out.reshape(1, cell.heads, cell.length, cell.dim)
