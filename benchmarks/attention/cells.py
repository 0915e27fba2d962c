"""The cells of the attention benchmark: a pattern at a size, forward or with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_core.attention import (
    BlockPattern,
    bigbird,
    from_block_mask,
    global_tokens,
    local_window,
    top_k_blocks,
)

DENSITIES = (1.0, 0.5, 0.25, 0.1, 0.05)
#: Tokens of a batch, except where one sequence is longer.
TOKENS = 32768


class Cell(NamedTuple):
    """What is measured.

    Attributes:
        pattern: a name of :data:`PATTERNS`.
        target: density that a random or selected pattern aims at; of the others about what comes out.
        length, dim, batch, heads: of the operands.
        block_size: of the pattern.
        dtype: of the operands.
        gradient: forward and backward, not forward alone.
    """

    pattern: str
    target: float
    length: int
    dim: int
    batch: int
    heads: int
    block_size: int = 128
    dtype: torch.dtype = torch.bfloat16
    gradient: bool = False

    @property
    def key(self) -> str:
        """Name on the command line."""
        dtype = str(self.dtype).removeprefix("torch.")
        what = "both" if self.gradient else "forward"
        return f"{self.pattern}-{self.target:g}-{self.length}-{self.dim}-{self.block_size}-{dtype}-{what}"


def random_pattern(
    length: int, target: float, block_size: int, device: torch.device, seed: int
) -> BlockPattern:
    """Full blocks at random, the whole number of them that is closest to ``target``.

    Rows differ by one block at most, and have at least one.
    """
    rows = -(-length // block_size)
    total = random_blocks_in(length, target, block_size)
    generator = torch.Generator().manual_seed(seed)
    least, extra = divmod(total, rows)
    counts = least + (torch.randperm(rows, generator=generator) < extra).long()
    order = torch.rand(rows, rows, generator=generator).argsort(dim=1)
    mask = torch.zeros(rows, rows, dtype=torch.bool)
    mask.scatter_(1, order, torch.arange(rows) < counts[:, None])
    return from_block_mask(mask.to(device), block_size, query_length=length, key_length=length)


def random_blocks_in(length: int, target: float, block_size: int) -> int:
    """Blocks that :func:`random_pattern` keeps."""
    rows = -(-length // block_size)
    return min(rows * rows, max(rows, round(target * rows * rows)))


def _random(cell: Cell, q: Tensor, k: Tensor, seed: int) -> BlockPattern:
    return random_pattern(cell.length, cell.target, cell.block_size, q.device, seed)


def _bigbird(cell: Cell, q: Tensor, k: Tensor, seed: int) -> BlockPattern:
    size = cell.block_size
    blocks = max(1, round(0.03 * cell.length / size))
    return bigbird(cell.length, cell.length // 32, size, blocks, size, seed=seed, device=q.device)


def _window_and_global(cell: Cell, q: Tensor, k: Tensor, seed: int) -> BlockPattern:
    near = local_window(cell.length, cell.length // 24, cell.block_size, device=q.device)
    return near | global_tokens(cell.length, cell.block_size // 2, cell.block_size, device=q.device)


def _causal_window(cell: Cell, q: Tensor, k: Tensor, seed: int) -> BlockPattern:
    return local_window(cell.length, cell.length // 10, cell.block_size, device=q.device).causal()


def _top_k(cell: Cell, q: Tensor, k: Tensor, seed: int) -> BlockPattern:
    return top_k_blocks(q, k, cell.target, block_size=cell.block_size)


PATTERNS: dict[str, Callable[[Cell, Tensor, Tensor, int], BlockPattern]] = {
    "random": _random,
    "bigbird": _bigbird,
    "window+global": _window_and_global,
    "causal-window": _causal_window,
    "top-k": _top_k,
}


class Cells(NamedTuple):
    """The cases, in order.

    Attributes:
        aims: cells that the aims are about.
        others: the rest.
    """

    aims: list[Cell]
    others: list[Cell]


def cells(device: str, *, quick: bool) -> Cells:
    """All cells, the more important ones first."""
    if device == "cpu":
        return _cpu_cells(quick)
    if quick:
        aims = [_cell("random", target, 4096, 64) for target in (0.1, 1.0)]
        aims += [cell._replace(gradient=True) for cell in aims]
        selected = _cell("top-k", 0.1, 1024, 128)._replace(block_size=64, dtype=torch.float16)
        return Cells(aims, [_cell("bigbird", 0.1, 1024, 64), selected])
    forward = [
        _cell("random", target, length, dim)
        for length in (4096, 16384, 65536, 1024)
        for dim in (64, 128)
        for target in (0.1, *(target for target in DENSITIES if target != 0.1))
        if target * length / 128 >= 0.5
    ]
    main = [cell._replace(gradient=gradient) for gradient in (False, True) for cell in forward]
    aims = [cell for cell in main if cell.target == 0.1 and cell.length > 1024]
    full = [cell for cell in main if cell.target == 1.0 and not cell.gradient]
    middle = [cell for cell in main if cell.length in (4096, 16384)]
    patterns = [
        _cell(name, 0.1, length, dim)._replace(gradient=gradient)
        for gradient in (False, True)
        for length, dim in ((4096, 64), (16384, 64), (16384, 128))
        for name in PATTERNS
        if name != "random"
    ]
    small_blocks = [
        cell._replace(block_size=64) for cell in middle if cell.target in (0.5, 0.1) and not cell.gradient
    ]
    small_blocks += [cell._replace(gradient=True) for cell in small_blocks if cell.target == 0.1]
    half = [
        cell._replace(dtype=torch.float16)
        for cell in middle
        if cell.target in (1.0, 0.1) and cell.dim == 64 and not cell.gradient
    ]
    first = [*aims, *full]
    rest = dict.fromkeys([*middle, *patterns, *main, *small_blocks, *half])
    return Cells(first, [cell for cell in rest if cell not in first])


def _cell(pattern: str, target: float, length: int, dim: int) -> Cell:
    return Cell(pattern, target, length, dim, max(1, TOKENS // length), 8 if length > TOKENS else 16)


def _cpu_cells(quick: bool) -> Cells:
    lengths, heads = ([512, 1024], 2) if quick else ([4096, 2048, 1024, 512], 8)
    targets = [0.1, 1.0] if quick else list(DENSITIES)
    found = [
        Cell("random", target, length, 64, 1, heads, 64, torch.float32)
        for target in targets
        for length in lengths
        if target * length / 64 >= 0.5
    ]
    found += [cell._replace(gradient=True) for cell in found if cell.target in (0.1, 1.0)]
    others = [
        Cell(name, 0.1, lengths[1], 64, 1, heads, 64, torch.float32) for name in PATTERNS if name != "random"
    ]
    return Cells(found, others)
