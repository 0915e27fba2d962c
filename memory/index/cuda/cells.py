"""Cells around rows drawn at random: each row belongs to the nearest of them, its pivot.

A query reads the cells of its nearest pivots (Voronoi hashing: Paulevé, Jégou and Amsaleg, "Locality
sensitive hashing: a comparison of hash function types and querying mechanisms", Pattern Recognition Letters
2010, without the training of its k-means variant). Rows lie in lists, cell after cell, with their codes. Of
the rows read those of the lowest distance are kept: all whose distance is below the one at which they would
become too many, so that no tie has to be broken. Every size is fixed beforehand; what does not fit in the
room for a query's rows is counted.
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

#: Rows of a cell, nearly.
ROWS_PER_CELL = 48
#: Up to so many cells; beyond, cells have this many rows before there are more of them.
USUAL_PIVOTS, MOST_ROWS_PER_CELL = 1 << 14, 610
#: An index of so many rows is read as a whole.
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
    """A power of two: 128 cells, all of which are read, up to 65,536 rows; then cells of about 48 rows up to
    16,384 cells, and of about 610 from ten million rows on.

    Clusters that are smaller than a cell are not found by it, and small cells cost a small index nothing.
    """
    if rows <= READ_WHOLE:
        return min(PROBE_LIMIT, 1 << (max(rows, 1).bit_length() - 1))
    small = min(USUAL_PIVOTS, _power_of_two(rows / ROWS_PER_CELL))
    return max(small, min(PIVOT_LIMIT, _power_of_two(rows / MOST_ROWS_PER_CELL)))


def sizes_for(rows: int, pivots: int) -> tuple[int, int]:
    """Probes that read all cells if these are few, else about 14,700 rows, and room for what they hold."""
    if pivots <= PROBE_LIMIT:
        return PROBE_LIMIT, max(24_576, min(rows, READ_WHOLE))
    return min(PROBE_LIMIT, max(24, round(_ROWS_READ * pivots / max(rows, 1)))), 24_576


def _power_of_two(value: float) -> int:
    """The nearest power of two, at least 1."""
    return 1 << max(0, round(math.log2(max(value, 1.0))))


def build(vectors: Tensor, alive: Tensor, count: int, seed: int, pivots: int = 0) -> Cells:
    """Sort the living of the first ``count`` rows into cells.

    Args:
        vectors: (rows, dim) float16.
        alive: (rows,) bool.
        count: rows.
        seed: of the pivots and the directions.
        pivots: how many, at most 32768; 0: see :func:`pivots_for`.
    """
    device, dim = vectors.device, vectors.shape[1]
    living = alive[:count].nonzero()[:, 0]
    number = min(pivots or pivots_for(len(living)), max(len(living), 1))
    drawn = np.random.default_rng(seed).choice(max(len(living), 1), number, replace=False, shuffle=False)
    # Half precision on a GPU, where products of it are many times faster.
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    base = torch.zeros((number + DIRECTIONS, dim), dtype=dtype, device=device)
    if len(living):
        base[:number] = vectors[living[torch.from_numpy(np.sort(drawn)).to(device)]].to(dtype)
    base[number:] = directions(dim, seed).to(device, dtype)
    cell = _nearest(base[:number], vectors, living)
    return _arranged(base, number, cell, living, _coded(base[number:], vectors, living), count)


def extended(cells: Cells, vectors: Tensor, alive: Tensor, count: int) -> Cells:
    """The living of the first ``count`` rows in cells around the same pivots.

    Args:
        cells: of the first ``cells.hashed`` of them.
        vectors: (rows, dim) float16.
        alive: (rows,) bool.
        count: rows.
    """
    new = alive[cells.hashed : count].nonzero()[:, 0] + cells.hashed
    own, kept = torch.arange(cells.pivots, device=vectors.device, dtype=torch.int32), cells.live
    old = own.repeat_interleave(cells.starts.diff().to(torch.int64))[kept]
    cell = torch.cat([old, _nearest(cells.base[: cells.pivots], vectors, new)])
    rows = torch.cat([cells.rows[kept].to(torch.int64), new])
    codes = torch.cat([cells.codes[kept], _coded(cells.base[cells.pivots :], vectors, new)])
    return _arranged(cells.base, cells.pivots, cell, rows, codes, count)


def _nearest(pivots: Tensor, vectors: Tensor, rows: Tensor) -> Tensor:
    """(rows,) int32 cell of each of these rows."""
    cell = torch.empty(len(rows), dtype=torch.int32, device=vectors.device)
    step = max(1, _CELLS_AT_ONCE // len(pivots))
    for first in range(0, len(rows), step):
        cell[first : first + step] = products_of(pivots, vectors[rows[first : first + step]]).argmax(1)
    return cell


def _coded(directions: Tensor, vectors: Tensor, rows: Tensor) -> Tensor:
    """(rows, 16) int32 codes of these rows."""
    codes = torch.empty((len(rows), WORDS), dtype=torch.int32, device=vectors.device)
    for first in range(0, len(rows), _CODED_AT_ONCE):
        some = rows[first : first + _CODED_AT_ONCE]
        codes[first : first + _CODED_AT_ONCE] = row_codes(products_of(directions, vectors[some]))
    return codes


def _arranged(base: Tensor, pivots: int, cell: Tensor, rows: Tensor, codes: Tensor, count: int) -> Cells:
    """Rising rows of known cells and codes, cell after cell."""
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
    """Rows of the lowest distance in the cells nearest to each query.

    Args:
        cells: of the index.
        products: (queries, pivots + 256) float16 of the queries, see :meth:`Cells.products`.
        sizes: fixed sizes.
        overflow: (2,) int64 queries whose cells held more than ``capacity`` rows and the rows cut; added to.
        impl: ``"reference"``, ``"triton"`` or ``"auto"``.
    """
    if CANDIDATES.choose(impl, products.device) == "triton":
        found: Candidates = CANDIDATES.load("triton").candidates(cells, products, sizes, overflow)
        return found
    probed = probe(cells, products, sizes, overflow)
    return take(cells, *distances_read(cells, probed, sizes.capacity), sizes.rerank)


def probe(cells: Cells, products: Tensor, sizes: Sizes, overflow: Tensor) -> Probed:
    """The cells that queries read, in plain torch."""
    scores = products[:, : cells.pivots].contiguous().view(torch.int16).to(torch.int32)
    # Negative floats fall as their bits rise; equal scores go by the number of the cell.
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
    """Slots and distances of the rows read, in plain torch.

    Returns:
        (queries, capacity) int64 and int32; places behind the last row have distance 32767, as removed rows.
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
    """Rows below the distance at which there are more than ``rerank``, in plain torch.

    Where the lowest distance alone has more, the first of its places are taken.
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
