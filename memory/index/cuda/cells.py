"""Cells around randomly drawn rows, the pivots; each row belongs to its nearest pivot.

A query reads the cells of its nearest pivots (Voronoi hashing: Paulevé, Jégou and Amsaleg, "Locality
sensitive hashing: a comparison of hash function types and querying mechanisms", Pattern Recognition Letters
2010, without the k-means training). Rows lie in lists, cell after cell, with their codes. A query keeps all
rows below the distance at which there would be too many, so no tie has to be broken. Every size is fixed in
advance; rows that do not fit are counted.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from memory.index.cuda.codes import (
    BINS,
    DIRECTIONS,
    NEVER,
    WORDS,
    asked_levels,
    directions,
    distances,
    row_codes,
)
from memory.index.cuda.layout import PROBE_LIMIT, Candidates, Cells, Probed, Sizes, products_of
from sparse_core.kernels.op import Impl, Op, by_torch, by_triton

#: Approximate rows per cell.
ROWS_PER_CELL = 48
#: Number of cells up to which cells keep that size; beyond, cells grow to this many rows first.
USUAL_PIVOTS, MOST_ROWS_PER_CELL = 1 << 14, 610
#: An index of up to this many rows is read as a whole.
READ_WHOLE = 1 << 16
_ROWS_READ = 14_700
PIVOT_LIMIT = 1 << 15
_CELLS_AT_ONCE = 1 << 28
_CODED_AT_ONCE = 1 << 18

CANDIDATES: Op[()] = Op(
    "candidates",
    __package__,
    by_triton(module=f"{__package__}.cells_triton"),
    by_torch(module=__name__),
    gradient=False,
)


def pivots_for(rows: int) -> int:
    """Return the number of cells, a power of two.

    Up to 65,536 rows there are 128 cells, all of which are read. Then cells have about 48 rows, up to 16,384
    cells, and about 610 rows from ten million rows on. Cells miss clusters that are smaller than a cell.
    """
    if rows <= READ_WHOLE:
        return min(PROBE_LIMIT, 1 << (max(rows, 1).bit_length() - 1))
    small = min(USUAL_PIVOTS, _power_of_two(rows / ROWS_PER_CELL))
    return max(small, min(PIVOT_LIMIT, _power_of_two(rows / MOST_ROWS_PER_CELL)))


def sizes_for(rows: int, pivots: int) -> tuple[int, int]:
    """Return probes that read all cells if these are few, else about 14,700 rows; and room for their rows."""
    if pivots <= PROBE_LIMIT:
        return PROBE_LIMIT, max(24_576, min(rows, READ_WHOLE))
    return min(PROBE_LIMIT, max(24, round(_ROWS_READ * pivots / max(rows, 1)))), 24_576


def _power_of_two(value: float) -> int:
    """Return the nearest power of two, at least 1."""
    return 1 << max(0, round(math.log2(max(value, 1.0))))


def build(vectors: Tensor, alive: Tensor, count: int, seed: int, pivots: int = 0) -> Cells:
    """Sort the living rows among the first ``count`` into cells.

    Args:
        vectors: (rows, dim) float16.
        alive: (rows,) bool.
        pivots: number of cells, at most 32768; 0: see :func:`pivots_for`.
    """
    device, dim = vectors.device, vectors.shape[1]
    living = alive[:count].nonzero()[:, 0]
    number = min(pivots or pivots_for(len(living)), max(len(living), 1))
    drawn = np.random.default_rng(seed).choice(max(len(living), 1), number, replace=False, shuffle=False)
    # Half-precision products are many times faster on a GPU.
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    base = torch.zeros((number + DIRECTIONS, dim), dtype=dtype, device=device)
    if len(living):
        base[:number] = vectors[living[torch.from_numpy(np.sort(drawn)).to(device)]].to(dtype)
    base[number:] = directions(dim, seed).to(device, dtype)
    cell = _nearest(base[:number], vectors, living)
    return _arrange(base, number, cell, living, _encode(base[number:], vectors, living), count)


def extend(cells: Cells, vectors: Tensor, alive: Tensor, count: int) -> Cells:
    """Sort the living rows among the first ``count`` into cells around the same pivots."""
    new = alive[cells.hashed : count].nonzero()[:, 0] + cells.hashed
    own, kept = torch.arange(cells.pivots, device=vectors.device, dtype=torch.int32), cells.live
    old = own.repeat_interleave(cells.starts.diff().to(torch.int64))[kept]
    cell = torch.cat([old, _nearest(cells.base[: cells.pivots], vectors, new)])
    rows = torch.cat([cells.rows[kept].to(torch.int64), new])
    codes = torch.cat([cells.codes[kept], _encode(cells.base[cells.pivots :], vectors, new)])
    return _arrange(cells.base, cells.pivots, cell, rows, codes, count)


def _nearest(pivots: Tensor, vectors: Tensor, rows: Tensor) -> Tensor:
    """Return the (rows,) int32 cells of these rows."""
    cell = torch.empty(len(rows), dtype=torch.int32, device=vectors.device)
    step = max(1, _CELLS_AT_ONCE // len(pivots))
    for first in range(0, len(rows), step):
        cell[first : first + step] = products_of(pivots, vectors[rows[first : first + step]]).argmax(1)
    return cell


def _encode(directions: Tensor, vectors: Tensor, rows: Tensor) -> Tensor:
    """Return the (rows, 16) int32 codes of these rows."""
    codes = torch.empty((len(rows), WORDS), dtype=torch.int32, device=vectors.device)
    for first in range(0, len(rows), _CODED_AT_ONCE):
        some = rows[first : first + _CODED_AT_ONCE]
        codes[first : first + _CODED_AT_ONCE] = row_codes(products_of(directions, vectors[some]))
    return codes


def _arrange(base: Tensor, pivots: int, cell: Tensor, rows: Tensor, codes: Tensor, count: int) -> Cells:
    """Arrange rising rows with known cells and codes cell after cell."""
    device = codes.device
    starts = torch.zeros(pivots + 1, dtype=torch.int32, device=device)
    starts[1:] = torch.bincount(cell, minlength=pivots).cumsum(0)
    order = torch.sort(cell, stable=True).indices
    rows = rows[order]
    slots = torch.full((count,), -1, dtype=torch.int32, device=device)
    slots[rows] = torch.arange(len(rows), dtype=torch.int32, device=device)
    live = torch.ones(len(rows), dtype=torch.bool, device=device)
    return Cells(pivots, base, starts, codes[order], rows.to(torch.int32), live, slots)


def candidates(
    cells: Cells, products: Tensor, sizes: Sizes, overflow: Tensor, *, impl: Impl = "auto"
) -> Candidates:
    """Return the rows of lowest distance in the cells nearest to each query.

    Args:
        products: (queries, pivots + 256) float16 of the queries, see :meth:`Cells.products`.
        sizes: fixed sizes.
        overflow: (2,) int64 counters, incremented: queries whose cells held more than ``capacity`` rows, and
            the rows cut.
    """
    if CANDIDATES.choose(impl, products.device) == "triton":
        found: Candidates = CANDIDATES.load("triton").candidates(cells, products, sizes, overflow)
        return found
    probed = probe(cells, products, sizes, overflow)
    return take(cells, *distances_read(cells, probed, sizes.capacity), sizes.rerank)


def probe(cells: Cells, products: Tensor, sizes: Sizes, overflow: Tensor) -> Probed:
    """Return the cells that queries read, in plain torch."""
    scores = products[:, : cells.pivots].contiguous().view(torch.int16).to(torch.int32)
    # The bits of negative floats rise as the floats fall; ties are ordered by cell number.
    falling = 32767 - torch.where(scores < 0, scores ^ 0x7FFF, scores)
    keys = (falling.to(torch.int64) << 32) | torch.arange(cells.pivots, device=products.device)
    probes = min(sizes.probes, cells.pivots)
    nearest = keys.topk(probes, dim=1, largest=False).values & 0xFFFFFFFF
    begin = cells.starts[nearest]
    size = cells.starts[nearest + 1] - begin
    ends = size.cumsum(1, dtype=torch.int32)
    cut = (ends[:, -1] - sizes.capacity).clamp_min(0)
    overflow += torch.stack([(cut > 0).sum(), cut.sum()])
    asked = asked_levels(products[:, cells.pivots :], cells.base.shape[1])
    return Probed(asked, begin - (ends - size), ends.clamp_max(sizes.capacity))


def distances_read(cells: Cells, probed: Probed, capacity: int) -> tuple[Tensor, Tensor]:
    """Return slots and distances of the rows read, in plain torch.

    Returns:
        (queries, capacity) int64 and int32; removed rows and places after the last row have distance 32767.
    """
    asked, device = len(probed.ends), cells.codes.device
    place = torch.arange(capacity, dtype=torch.int32, device=device).expand(asked, capacity).contiguous()
    number = torch.searchsorted(probed.ends, place, right=True)
    used = number < probed.ends.shape[1]
    shift = probed.shifts.gather(1, number.clamp_max(probed.ends.shape[1] - 1))
    slot = torch.where(used, place + shift, 0).to(torch.int64)
    found = torch.full((asked, capacity), NEVER, dtype=torch.int32, device=device)
    for query in range(asked):
        length = int(probed.ends[query, -1])
        some = slot[query, :length]
        levels, base = (part[query : query + 1] for part in probed.asked)
        near = distances(cells.codes[some], levels, base)[0]
        found[query, :length] = near.masked_fill(~cells.live[some], NEVER)
    return slot, found


def take(cells: Cells, slot: Tensor, distance: Tensor, rerank: int) -> Candidates:
    """Return the rows below the distance at which there are more than ``rerank``, in plain torch.

    If the lowest distance alone has more, its first places are taken.
    """
    asked = len(slot)
    out = torch.full((asked, rerank), -1, dtype=torch.int32, device=slot.device)
    lengths = torch.zeros(asked, dtype=torch.int32, device=slot.device)
    for query in range(asked):
        near = distance[query]
        running = torch.bincount(near[near < BINS], minlength=BINS).cumsum(0)
        bins = int((running <= rerank).sum())
        below = int(running[bins - 1]) if bins else 0
        taken = near == bins if below == 0 and bins < BINS else near < bins
        rows = cells.rows[slot[query][taken][:rerank]]
        out[query, : len(rows)], lengths[query] = rows, len(rows)
    return Candidates(out, lengths)
