"""Rows in cells on a device, and searches over them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from memory.index.cuda import efforts
from memory.index.cuda.cells import build, candidates, extend
from memory.index.cuda.exact import exact_top
from memory.index.cuda.graphs import Graphs
from memory.index.cuda.keys import RankedRows
from memory.index.cuda.layout import Cells
from memory.index.cuda.rerank import rerank_top
from memory.index.cuda.rows import DeviceRows
from memory.index.cuda.scan import scan_top
from memory.index.effort import Effort
from memory.index.neighbours import Among, Ids, check_ids
from sparse_core.kernels.op import Impl

#: Largest tail: rows outside the cells that every query is compared with; the next search sorts in a longer
#: one.
TAIL_LIMIT = 4096
#: Most queries of one graph.
BATCH_LIMIT = 1024
#: On a CPU, the candidates of a few queries already fill the cache.
_CPU_BATCH = 32
#: Most rows of cells that one graph has room for.
ROOM = 1 << 27
#: Shares of removed rows at which cells are rebuilt, and at which space is freed.
_DEAD_SHARE, _DEAD_SPACE = 0.125, 0.25


class DeviceNeighbours(NamedTuple):
    """Neighbours on the device.

    Attributes:
        scores: (queries, k) float32 cosine similarities; -inf fills missing ones.
        ids: (queries, k) int64; -1 fills missing ones.
    """

    scores: Tensor
    ids: Tensor


class SortedRows:
    """Rows of a device, most of them in cells; the others, the tail, are compared with every query.

    Args:
        pivots: number of cells; 0: by the number of rows.
        capacity: room for the rows of the cells that a query reads; 0: by the effort.

    Attributes:
        rows: vectors and ids.
        cells: ``None`` before the first merge.
        overflow: (2,) int64 queries whose cells exceeded the room, and rows left out.
        graphs: captured searches.
    """

    def __init__(
        self, dim: int, device: torch.device, *, pivots: int, capacity: int, seed: int, impl: Impl
    ) -> None:
        self.rows = DeviceRows(dim, device)
        self.cells: Cells | None = None
        self.overflow = torch.zeros(2, dtype=torch.int64, device=device)
        self.graphs = Graphs()
        self._device, self._impl = device, impl
        self._pivots, self._capacity, self._seed = pivots, capacity, seed
        self._drawn_for = self._dead = 0

    @property
    def pivots(self) -> int:
        """Number of cells."""
        return self.cells.pivots if self.cells else 0

    @property
    def tail(self) -> int:
        """Number of rows that are in no cell."""
        return self.rows.count - (self.cells.hashed if self.cells else 0)

    def add(self, vectors: Tensor, ids: Ids) -> None:
        """Append checked rows to the tail."""
        before = self.rows.capacity
        self.rows.add(vectors, ids)
        if self.rows.capacity != before:
            self.graphs.clear()

    def remove(self, ids: Ids) -> int:
        """Exclude rows from searches and return how many existed."""
        found = self.rows.remove(ids)
        if self.cells is not None:
            there = found[found < self.cells.hashed]
            self.cells.remove(torch.from_numpy(there).to(self._device))
            self._dead += len(there)
        return len(found)

    def merge(self, *, whole: bool) -> bool:
        """Sort in the tail and drop removed rows; return True if the number of cells changed.

        Args:
            whole: draw new pivots; this also happens whenever the rows have doubled.
        """
        if self.cells is not None and not (whole or self.tail or self._dead):
            return False
        self.graphs.clear()
        drawn = self.cells is not None and not whole and len(self.rows) < 2 * self._drawn_for
        if self.rows.dead > _DEAD_SPACE * self.rows.count or not (drawn or self.rows.rising):
            self.rows, drawn = self.rows.compact(), False
        rows, self._dead = self.rows, 0
        if self.cells is not None and drawn:
            self.cells = extend(self.cells, rows.vectors, rows.living_rows, rows.count)
            return False
        before = self.pivots
        # Drop the old cells first, because both may not fit.
        self.cells = None
        self.cells = build(rows.vectors, rows.living_rows, rows.count, self._seed, self._pivots)
        self._drawn_for = len(rows)
        return before not in (0, self.pivots)

    def compact(self) -> bool:
        """Free the space of removed rows and draw new pivots; returns like :meth:`merge`."""
        self.rows = self.rows.compact()
        return self.merge(whole=True)

    @property
    def is_due(self) -> bool:
        """True if a search should merge first."""
        cells = self.cells
        return cells is None or self.tail > TAIL_LIMIT or self._dead > _DEAD_SHARE * cells.hashed

    def search(self, queries: Tensor, k: int, effort: Effort, *, graphs: bool) -> DeviceNeighbours:
        """Return the k nearest (at most 1024) of float32 vectors by an effort; needs a merge before.

        Args:
            queries: (queries, dim) on the device.
            graphs: capture the search for later ones of its size.
        """
        cells = self.cells
        assert cells is not None
        most = _CPU_BATCH
        if self._device.type == "cuda":
            room = efforts.sizes_of(effort, cells, k, self._capacity).capacity
            most = min(BATCH_LIMIT, 1 << max(0, (ROOM // room).bit_length() - 1))
        parts = []
        for first in range(0, len(queries), most):
            some = queries[first : first + most]
            parts.append(
                self._run_graph(some, k, effort) if graphs else DeviceNeighbours(*self.run(some, k, effort))
            )
        found = (
            parts[0]
            if len(parts) == 1
            else DeviceNeighbours(*(torch.cat(part) for part in zip(*parts, strict=True)))
        )
        return found if self.rows.rising else _by_id(found)

    def _run_graph(self, queries: Tensor, k: int, effort: Effort) -> DeviceNeighbours:
        """Run one graph, with the queries padded to a power of two."""
        if self._device.type != "cuda":
            return DeviceNeighbours(*self.run(queries, k, effort))
        asked = len(queries)
        size = 1 << (asked - 1).bit_length()
        if size != asked:
            queries = torch.cat([queries, queries[:1].expand(size - asked, -1)])
        key = (effort, size, k, self._tail_room())
        scores, ids = self.graphs.run(key, lambda batch: self.run(batch, k, effort), queries)
        # The next replay writes to the same memory.
        return DeviceNeighbours(scores[:asked].clone(), ids[:asked].clone())

    def run(self, queries: Tensor, k: int, effort: Effort) -> RankedRows:
        """Search one batch without a graph; equal scores are in row order."""
        rows, cells = self.rows, self.cells
        assert cells is not None  # Merged before.
        lengths = None
        if efforts.is_scan(effort):
            listed = scan_top(
                cells.codes,
                cells.coordinates(queries),
                min(max(effort.rerank, 4 * k), max(len(cells.rows), 1)),
                dim=rows.dim,
                rows=cells.rows,
                live=cells.live,
                impl=self._impl,
            )
        else:
            sizes = efforts.sizes_of(effort, cells, k, self._capacity)
            listed, lengths = candidates(
                cells, cells.products(queries), sizes, self.overflow, impl=self._impl
            )
        return rerank_top(
            rows.vectors,
            queries,
            listed,
            k,
            alive=rows.living_rows,
            lengths=lengths,
            tail=(cells.hashed, self._tail_room()),
            names=rows.names,
            impl=self._impl,
        )

    def _tail_room(self) -> int:
        """Return the room for the tail, 0 or a power of two."""
        return 1 << (self.tail - 1).bit_length() if self.tail else 0

    def places(self, among: Among | None) -> Tensor:
        """Return the rising rows that count, on the device."""
        rows = self.rows
        if among is None:
            return rows.living_rows[: rows.count].nonzero()[:, 0]
        if among.kept is None:
            return torch.from_numpy(rows.among(rows.count, among.ids)).to(self._device)
        mask = rows.kept_mask(rows.count, check_ids("among", among.ids), among.kept)
        return torch.from_numpy(mask.copy()).to(self._device).nonzero()[:, 0]

    def exact(self, queries: Tensor, places: Tensor, k: int) -> DeviceNeighbours:
        """Return the k best of rows at rising places."""
        if not len(places):
            return self.empty_answer(len(queries), k)
        found = exact_top(self.rows.vectors, queries, places, k, impl=self._impl)
        named = self.rows.names[found.rows.clamp_min(0)].masked_fill(found.rows < 0, -1)
        neighbours = DeviceNeighbours(found.scores, named)
        return neighbours if self.rows.rising else _by_id(neighbours)

    def empty_answer(self, queries: int, k: int) -> DeviceNeighbours:
        """Return the answer of an empty set of rows."""
        scores = torch.full((queries, k), -torch.inf, device=self._device, dtype=torch.float32)
        return DeviceNeighbours(scores, torch.full((queries, k), -1, dtype=torch.int64, device=self._device))


def _by_id(found: DeviceNeighbours) -> DeviceNeighbours:
    """Order equal scores by rising id, for rows that are not in id order."""
    order = torch.sort(found.ids, dim=1, stable=True).indices
    scores, ids = found.scores.gather(1, order), found.ids.gather(1, order)
    order = torch.sort(scores, dim=1, descending=True, stable=True).indices
    return DeviceNeighbours(scores.gather(1, order), ids.gather(1, order))
