"""The index of the memory on a GPU."""

from __future__ import annotations

import os
import threading
import warnings
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from memory.errors import RecallWarning
from memory.index.cuda.cells import PIVOT_LIMIT, PROBE_LIMIT, Cells, Sizes, build, candidates, sizes_for
from memory.index.cuda.exact import exact_top
from memory.index.cuda.graphs import Graphs
from memory.index.cuda.keys import Ranked
from memory.index.cuda.measured import Measured, measured
from memory.index.cuda.rerank import K_LIMIT, rerank_top
from memory.index.cuda.rows import DeviceRows
from memory.index.cuda.scan import scan_top
from memory.index.effort import USUAL, check_aim
from memory.index.files import load_arrays, save_arrays
from memory.index.neighbours import (
    Among,
    Ids,
    Neighbours,
    check_dim,
    check_ids,
    check_k,
    check_units,
    nothing,
)
from sparse_core.op import Impl

Method = Literal["cells", "scan"]
_KIND = "cuda"
#: Rows behind the cells that every query is compared with; more are sorted in at the next search.
TAIL_LIMIT = 4096
#: Queries of one graph.
BATCH_LIMIT = 1024
#: On a CPU, candidates of a few queries fill the cache already.
_CPU_BATCH = 32
#: Cells are made again when this share of their rows was removed.
_DEAD_SHARE = 0.125
_NUMBERS = ("dim", "pivots", "probes", "capacity", "rerank", "scan_rerank", "seed", "generation")


class Found(NamedTuple):
    """Neighbours on the device.

    Attributes:
        scores: (queries, k) float32 cosine similarities, -inf where there are fewer than k.
        ids: (queries, k) int64, -1 where there are fewer.
    """

    scores: Tensor
    ids: Tensor


class CudaIndex:
    """Vectors in half precision on a device, found by cells and packed codes and compared exactly.

    Nothing is trained: the pivots of the cells are rows drawn from the seed, and the codes are signs and
    sizes along random directions (:mod:`memory.index.cuda.cells`, :mod:`memory.index.cuda.codes`). Shapes are
    fixed, nothing is read back, and on a GPU a search is one CUDA graph, captured at the first search of its
    size (a power of two). On a CPU the same steps run in plain torch.

    Rows added after :meth:`merge` are compared with every query until the next merge, which draws the pivots
    anew. A row has 64 bytes of codes, its half-precision vector, and 18 bytes of places, id and flags.
    Results depend on the seed and on what was added, never on time.

    How much the sizes below find depends on the vectors: those around clear centres nearly all, evenly spread
    ones little. So the first search after a merge or :meth:`change_effort` measures it on 64 rows
    (:attr:`recall`), and warns with ``RecallWarning`` where it is clearly below .95.

    Args:
        dim: of a vector.
        device: ``"cuda"`` or ``"cpu"``.
        pivots: cells, at most 32768; 0 for one in 48 to 610 rows, a power of two.
        probes: cells a query reads, at most 128; more for more than 64 neighbours. 0: what holds about 14,700
            rows, from 24 to 128; an index of 65,536 rows is read as a whole.
        capacity: rows in these cells that there is room for; see :attr:`overflow`. 0: 24,576 or, where all is
            read, all.
        rerank: of these, how many of the lowest distance are compared exactly, at most; more for more than a
            quarter as many neighbours.
        scan_rerank: rows of the lowest distance that ``method="scan"`` compares.
        seed: of pivots and directions.
        impl: ``"reference"``, ``"triton"`` or ``"auto"``.

    Attributes:
        dim, pivots, ..., seed: as given.
        generation: how far the index follows the store; kept in its file, used by nobody here.
        identity: of the store's history up to there; likewise.
    """

    def __init__(
        self,
        dim: int,
        *,
        device: str | torch.device = "cuda",
        pivots: int = 0,
        probes: int = 0,
        capacity: int = 0,
        rerank: int = 512,
        scan_rerank: int = 1024,
        seed: int = 0,
        impl: Impl = "auto",
    ) -> None:
        self.dim = check_dim(dim)
        self.device = torch.device(device)
        _check_sizes(Sizes(probes or 1, capacity or 1, rerank))
        if scan_rerank < 1:
            raise ValueError(f"scan_rerank must be at least 1, got {scan_rerank}")
        if not 0 <= pivots <= PIVOT_LIMIT:
            raise ValueError(f"pivots must be from 0 to {PIVOT_LIMIT}, got {pivots}")
        if seed < 0:
            raise ValueError(f"seed must not be negative, got {seed}")
        self.pivots, self.probes, self.capacity = pivots, probes, capacity
        self.rerank, self.scan_rerank, self.seed = rerank, scan_rerank, seed
        self.impl: Impl = impl
        self.generation = 0
        self.identity = ""
        self._rows = DeviceRows(self.dim, self.device)
        self._cells: Cells | None = None
        self._dead_hashed = 0
        self._overflow = torch.zeros(2, dtype=torch.int64, device=self.device)
        self._measured: Measured | None = None
        self._graphs = Graphs()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays on the device."""
        return self._rows.nbytes + (self._cells.nbytes if self._cells else 0)

    @property
    def tail(self) -> int:
        """Rows that are in no cell yet; they are found all the same."""
        return self._rows.count - (self._cells.hashed if self._cells else 0)

    @property
    def cells(self) -> int:
        """Cells of the last merge."""
        return self._cells.pivots if self._cells else 0

    @property
    def overflow(self) -> tuple[int, int]:
        """Queries whose cells held more than ``capacity`` rows so far, and rows left out; waits for it.

        Queries that fill a batch up to its power of two are copies of the first and count as well.
        """
        queries, rows = self._overflow.tolist()
        return int(queries), int(rows)

    @property
    def recall(self) -> float | None:
        """Share of the ten nearest other rows that ``method="cells"`` found for rows of the index.

        Measured at the first search after a merge or :meth:`change_effort`; ``None`` before.
        """
        return None if self._measured is None else self._measured.recall

    def add(self, vectors: ArrayLike, ids: ArrayLike) -> None:
        """Add (rows, dim) unit vectors under (rows,) new ids; rising ids cost least.

        Raises:
            ValueError: not unit vectors, or an id that is there; nothing is added.
        """
        array = check_units("vectors", vectors, self.dim)
        self.add_tensor(torch.from_numpy(array if array.flags.writeable else array.copy()), ids)

    def add_tensor(self, vectors: Tensor, ids: ArrayLike) -> None:
        """Like :meth:`add`, for a tensor of any floating type on any device."""
        keys = check_ids("ids", ids)
        with self._lock:
            self._rows.check(vectors, keys)
            before = self._rows.capacity
            moved = self._rows.add(vectors, keys)
            if moved:
                self._cells = None
            if moved or self._rows.capacity != before:
                self._graphs.clear()

    def remove(self, ids: ArrayLike) -> int:
        """Leave these out from now on; the number that was there. Space comes back with :meth:`compact`."""
        keys = check_ids("ids", ids)
        with self._lock:
            found = self._rows.remove(keys)
            if self._cells is not None:
                found_there = found[found < self._cells.hashed]
                self._cells.remove(torch.from_numpy(found_there).to(self.device))
                self._dead_hashed += len(found_there)
            return len(found)

    def merge(self) -> None:
        """Draw pivots among the living rows and sort all of them into cells."""
        with self._lock:
            rows = self._rows
            # The old cells go first: both need not fit.
            self._graphs.clear()
            self._cells = None
            self._cells = build(rows.vectors, rows.alive, rows.count, self.seed, self.pivots)
            self._dead_hashed = 0
            self._measured = None

    def change_effort(
        self, *, probes: int | None = None, capacity: int | None = None, rerank: int | None = None
    ) -> None:
        """Search with other sizes from now on; the cells stay as they are.

        Raises:
            ValueError: sizes that do not fit; nothing is changed.
        """
        with self._lock:
            sizes = Sizes(
                self.probes if probes is None else probes,
                self.capacity if capacity is None else capacity,
                self.rerank if rerank is None else rerank,
            )
            # 0 stands for what suits the number of rows.
            _check_sizes(Sizes(sizes.probes or 1, sizes.capacity or 1, sizes.rerank))
            self.probes, self.capacity, self.rerank = sizes
            self._graphs.clear()
            self._measured = None

    def compact(self) -> None:
        """Give back the space of removed rows and sort the others again."""
        with self._lock:
            self._rows.compact()
            self.merge()

    def search(
        self, queries: ArrayLike, k: int, *, among: Among | None = None, aim: float | None = None
    ) -> Neighbours:
        """The k nearest of each query.

        Args:
            queries: (queries, dim) unit vectors.
            k: neighbours a query, at most 1024.
            among: what to choose from, all of it compared; ``None`` for all.
            aim: 1 compares all; what others find is what the sizes of the index do, see :attr:`recall`.
        """
        asked = check_units("queries", queries, self.dim)
        k = _check_limit(k)
        if among is not None:
            kept = among.ids if among.kept is None else np.asarray(among.ids)[among.kept]
            return self._exact(asked, check_ids("among", kept), k)
        if aim is not None and check_aim(aim) == 1.0:
            return self._exact(asked, self._rows.host_ids, k)
        found = self.search_tensor(torch.from_numpy(asked.copy()).to(self.device), k)
        return Neighbours(found.scores.cpu().numpy(), found.ids.cpu().numpy())

    def search_tensor(self, queries: Tensor, k: int, *, method: Method = "cells") -> Found:
        """The k nearest of each query, all on the device; the queries are taken as they are.

        Args:
            queries: (queries, dim) unit vectors on the device of the index.
            k: neighbours a query, at most 1024.
            method: ``"cells"``, or ``"scan"`` for the codes of all rows.
        """
        k = _check_limit(k)
        if queries.dim() != 2 or queries.shape[1] != self.dim or queries.device.type != self.device.type:
            raise ValueError(
                f"queries must be (queries, {self.dim}) on {self.device},"
                f" got {tuple(queries.shape)} on {queries.device}"
            )
        if method not in ("cells", "scan"):
            raise ValueError(f"method must be 'cells' or 'scan', got {method!r}")
        most = BATCH_LIMIT if self.device.type == "cuda" else _CPU_BATCH
        with self._lock:
            if len(self._rows) == 0 or len(queries) == 0:
                return self._nothing(len(queries), k)
            self._merge_if_due()
            if method == "cells" and self._measured is None:
                self._measure()
            parts = [
                self._batch(queries[first : first + most].float(), k, method)
                for first in range(0, len(queries), most)
            ]
        if len(parts) == 1:
            return parts[0]
        return Found(torch.cat([part.scores for part in parts]), torch.cat([part.ids for part in parts]))

    def eager(self, queries: Tensor, k: int, method: Method) -> tuple[Tensor, ...]:
        """(scores, ids) of one batch outside a graph, so that a caller can capture or time it himself.

        Args:
            queries: (queries, dim) float32 on the device.
            k: neighbours.
            method: how.
        """
        with self._lock:
            self._merge_if_due()
            return tuple(self._run(queries, _check_limit(k), method))

    def _merge_if_due(self) -> None:
        cells = self._cells
        if cells is None or self.tail > TAIL_LIMIT or self._dead_hashed > _DEAD_SHARE * cells.hashed:
            self.merge()

    def _measure(self) -> None:
        """Measure what searches find, and tell if it is little."""
        rows, overflow = self._rows, self._overflow.clone()
        found = measured(
            rows.vectors,
            rows.alive[: rows.count].nonzero()[:, 0],
            lambda queries, k: self._run(queries, k, "cells"),
            seed=self.seed,
            impl=self.impl,
        )
        # Queries of ours are not the caller's.
        self._overflow.copy_(overflow)
        self._measured = found
        if found.recall + 2.0 * found.error < USUAL:
            warnings.warn(
                f"searches find {found.recall:.2f} of the ten nearest of these vectors (measured on"
                f" {found.queries} of {len(self)} rows; usual {USUAL}): raise probes, capacity or rerank with"
                " change_effort(), now"
                f" {self.probes or 'chosen'}, {self.capacity or 'chosen'} and {self.rerank}, ask with"
                ' method="scan", or compare all with aim=1 or a FlatIndex',
                RecallWarning,
                stacklevel=3,
            )

    def _batch(self, queries: Tensor, k: int, method: Method) -> Found:
        """One graph's worth of queries, filled up to a power of two."""
        asked = len(queries)
        size = 1 << (asked - 1).bit_length()
        if self.device.type == "cuda" and size != asked:
            queries = torch.cat([queries, queries[:1].expand(size - asked, -1)])
        key = (method, len(queries), k, self._tail_room())
        scores, ids = self._graphs.run(key, lambda batch: self._run(batch, k, method), queries)
        if self.device.type == "cuda":
            # The next replay writes to the same memory.
            return Found(scores[:asked].clone(), ids[:asked].clone())
        return Found(scores[:asked], ids[:asked])

    def _run(self, queries: Tensor, k: int, method: Method) -> Ranked:
        """Neighbours by id."""
        rows, cells = self._rows, self._cells
        assert cells is not None  # Merged before.
        slots, lengths = max(len(cells.rows), 1), None
        if method == "scan":
            listed = scan_top(
                cells.codes,
                cells.coordinates(queries),
                min(max(self.scan_rerank, 4 * k), slots),
                dim=self.dim,
                rows=cells.rows,
                live=cells.live,
                impl=self.impl,
            )
        else:
            probes, capacity = sizes_for(cells.hashed, cells.pivots)
            sizes = Sizes(self.probes or probes, self.capacity or capacity, self.rerank).of(k)
            sizes = Sizes(sizes.probes, min(sizes.capacity, slots), min(sizes.rerank, slots))
            listed, lengths = candidates(
                cells, cells.products(queries), sizes, self._overflow, impl=self.impl
            )
        return rerank_top(
            rows.vectors,
            queries,
            listed,
            k,
            alive=rows.alive,
            lengths=lengths,
            tail=(cells.hashed, self._tail_room()),
            names=rows.ids,
            impl=self.impl,
        )

    def _tail_room(self) -> int:
        """Places for the tail, 0 or a power of two."""
        return 1 << (self.tail - 1).bit_length() if self.tail else 0

    def _exact(self, queries: NDArray[np.float32], ids: Ids, k: int) -> Neighbours:
        with self._lock:
            positions = self._rows.among(ids)
            if len(positions) == 0 or len(queries) == 0:
                return nothing(len(queries), k)
            asked = torch.from_numpy(queries.copy()).to(self.device)
            places = torch.from_numpy(positions).to(self.device)
            found = exact_top(self._rows.vectors, asked, places, k, impl=self.impl)
            named = self._rows.ids[found.rows.clamp_min(0)].masked_fill(found.rows < 0, -1)
            return Neighbours(found.scores.cpu().numpy(), named.cpu().numpy())

    def _nothing(self, queries: int, k: int) -> Found:
        scores = torch.full((queries, k), -torch.inf, device=self.device)
        return Found(scores, torch.full((queries, k), -1, dtype=torch.int64, device=self.device))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one file with the living vectors and their ids; codes and cells are made again."""
        with self._lock:
            rows = self._rows
            kept = np.flatnonzero(rows.host_alive)
            vectors = rows.vectors[torch.from_numpy(kept).to(self.device)].cpu().numpy()
            numbers: dict[str, str | int] = {name: getattr(self, name) for name in _NUMBERS}
            numbers["identity"] = self.identity
            arrays: dict[str, NDArray[Any]] = {"ids": rows.host_ids[kept], "vectors": vectors}
        return save_arrays(path, _KIND, numbers, arrays)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, device: str | torch.device = "cuda", impl: Impl = "auto"
    ) -> CudaIndex:
        """Read a file of :meth:`save`.

        Raises:
            FileNotFoundError: no such file.
            ValueError: damaged or another kind of file.
        """
        file = load_arrays(path, _KIND)
        numbers = {name: file.number(name) for name in _NUMBERS}
        generation = numbers.pop("generation")
        index = cls(numbers.pop("dim"), device=device, impl=impl, **numbers)
        index.generation = generation
        index.identity = file.header.get("identity", "")
        ids = file.array("ids", np.int64, (None,))
        vectors = file.array("vectors", np.float16, (len(ids), index.dim))
        # Copied to memory that may be written to, as torch wants it.
        index.add_tensor(torch.from_numpy(np.array(vectors)), np.array(ids))
        return index


def _check_sizes(sizes: Sizes) -> None:
    for name, number in sizes._asdict().items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    if sizes.probes > PROBE_LIMIT:
        raise ValueError(f"probes must be at most {PROBE_LIMIT}, got {sizes.probes}")


def _check_limit(k: int) -> int:
    k = check_k(k)
    if k > K_LIMIT:
        raise ValueError(f"k must be at most {K_LIMIT}, got {k}")
    return k
