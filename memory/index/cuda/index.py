"""The index of the memory on a GPU."""

from __future__ import annotations

import math
import os
import threading
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from memory.index.cuda.bits import SignCodes
from memory.index.cuda.buckets import Effort, Functions, Tables, build, candidates
from memory.index.cuda.exact import exact_top
from memory.index.cuda.graphs import Graphs
from memory.index.cuda.keys import Ranked
from memory.index.cuda.rerank import K_LIMIT, rerank_top
from memory.index.cuda.rows import DeviceRows
from memory.index.cuda.scan import hamming_top
from memory.index.files import load_arrays, save_arrays
from memory.index.neighbours import Ids, Neighbours, check_dim, check_ids, check_k, check_units, nothing
from sparse_core.dispatch import Impl

Method = Literal["scan", "buckets"]
_KIND = "cuda"
#: Rows behind the tables that every query is compared with; more are sorted in at the next search.
TAIL_LIMIT = 4096
#: Queries of one graph.
BATCH_LIMIT = 1024
#: On a CPU, candidates of a few queries fill the cache already.
_CPU_BATCH = 32
_SCAN_STEP = 1 << 16
#: The tables are built again when this share of their rows was removed.
_DEAD_SHARE = 0.125
_NUMBERS: tuple[str, ...] = (
    "dim",
    "expected",
    "bits",
    "planes",
    "functions",
    "tables",
    "depth",
    "probes",
    "capacity",
    "rerank",
)
_NUMBERS += ("scan_rerank", "scan_batch", "seed", "generation")


class Found(NamedTuple):
    """Neighbours on the device.

    Attributes:
        scores: (queries, k) float32 cosine similarities, -inf where there are fewer than k.
        ids: (queries, k) int64, -1 where there are fewer.
    """

    scores: Tensor
    ids: Tensor


class CudaIndex:
    """Vectors in half precision on a device, found by packed signs or hash tables and compared exactly.

    Nothing is trained. A few queries scan the codes of all rows; more look into hash tables. Shapes are
    fixed, nothing is read back, and on a GPU a search is one CUDA graph, captured at the first search of its
    size (a power of two). On a CPU the same steps run in plain torch.

    A row has ``bits / 8`` bytes of codes, once by row and once by word, and four bytes a table. Results
    depend on the seed and on what was added, never on time.

    Args:
        dim: of a vector.
        device: ``"cuda"`` or ``"cpu"``.
        expected: rows for which the hash functions are made.
        bits: of a row's code, at most 256 so that both copies have 64 bytes.
        planes: bits of a query's weights, see :mod:`memory.index.cuda.bits`.
        functions: hash functions.
        tables: pairs of them.
        depth: values of each function that probes are made of.
        probes: buckets a query reads.
        capacity: rows in these buckets that there is room for, at most 32768; see :attr:`overflow`.
        rerank: of these, how many of the lowest distance are compared (a row counts in every table).
        scan_rerank: rows of the lowest distance that a scan compares.
        scan_batch: most queries that scan rather than look into tables.
        seed: of directions and hash functions.
        impl: ``"reference"``, ``"triton"`` or ``"auto"``.

    Attributes:
        dim, expected, ..., seed: as given.
        generation: how far the index follows the store; kept in its file, used by nobody here.
    """

    def __init__(
        self,
        dim: int,
        *,
        device: str | torch.device = "cuda",
        expected: int = 200_000,
        bits: int = 256,
        planes: int = 2,
        functions: int = 20,
        tables: int = 20,
        depth: int = 32,
        probes: int = 5120,
        capacity: int = 32768,
        rerank: int = 8192,
        scan_rerank: int = 4096,
        scan_batch: int = 8,
        seed: int = 0,
        impl: Impl = "auto",
    ) -> None:
        self.dim = check_dim(dim)
        self.device = torch.device(device)
        sizes = {
            "expected": expected,
            "probes": probes,
            "capacity": capacity,
            "rerank": rerank,
            "depth": depth,
        }
        for name, number in (sizes | {"scan_rerank": scan_rerank}).items():
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        if bits > 256:
            raise ValueError(f"bits must be at most 256 (64 bytes in two copies), got {bits}")
        if seed < 0:
            raise ValueError(f"seed must not be negative, got {seed}")
        self.expected, self.bits, self.planes, self.seed = expected, bits, planes, seed
        self.functions, self.tables, self.depth, self.probes = functions, tables, depth, probes
        self.capacity, self.rerank, self.scan_rerank = capacity, rerank, scan_rerank
        self.scan_batch = scan_batch
        self.impl: Impl = impl
        self.generation = 0
        value_bits = min(max(round(math.log2(expected) / 2), 4), 12)
        self._hash = Functions(self.dim, functions, tables, value_bits, seed, self.device)
        self._effort = Effort(depth, probes, capacity, rerank)
        self._signs = SignCodes(self.dim, bits, planes, seed, self.device)
        self._rows = DeviceRows(self.dim, self._signs, self.device)
        self._tables: Tables | None = None
        self._dead_hashed = 0
        self._overflow = torch.zeros(2, dtype=torch.int64, device=self.device)
        self._graphs = Graphs()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays on the device."""
        return self._rows.nbytes + (self._tables.nbytes if self._tables else 0)

    @property
    def tail(self) -> int:
        """Rows that are not in the tables yet; they are found all the same."""
        return self._rows.count - (self._tables.hashed if self._tables else 0)

    @property
    def overflow(self) -> tuple[int, int]:
        """Queries whose buckets held more than ``capacity`` rows so far, and rows left out; waits for it.

        Queries that fill a batch up to its power of two are copies of the first and count as well.
        """
        queries, rows = self._overflow.tolist()
        return int(queries), int(rows)

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
                self._tables = None
            if moved or self._rows.capacity != before:
                self._graphs.clear()

    def remove(self, ids: ArrayLike) -> int:
        """Leave these out from now on; the number that was there. Space comes back with :meth:`compact`."""
        keys = check_ids("ids", ids)
        with self._lock:
            found = self._rows.remove(keys)
            if self._tables is not None:
                self._dead_hashed += int((found < self._tables.hashed).sum())
            return len(found)

    def merge(self) -> None:
        """Sort all living rows into the tables."""
        with self._lock:
            rows = self._rows
            # The old tables go first: two of them need not fit.
            self._graphs.clear()
            self._tables = None
            self._tables = build(self._hash, rows.vectors, rows.alive, rows.count)
            self._dead_hashed = 0

    def compact(self) -> None:
        """Give back the space of removed rows and sort the others again."""
        with self._lock:
            self._rows.compact()
            self.merge()

    def search(self, queries: ArrayLike, k: int, *, allowed: ArrayLike | None = None) -> Neighbours:
        """The k nearest of each query.

        Args:
            queries: (queries, dim) unit vectors.
            k: neighbours a query, at most 1024.
            allowed: (ids,) to choose from, compared exactly; ``None`` for all.
        """
        if allowed is not None:
            return self.search_within(queries, allowed, k)
        asked = check_units("queries", queries, self.dim)
        found = self.search_tensor(torch.from_numpy(asked.copy()).to(self.device), k)
        return Neighbours(found.scores.cpu().numpy(), found.ids.cpu().numpy())

    def search_tensor(self, queries: Tensor, k: int, *, method: Method | None = None) -> Found:
        """The k nearest of each query, all on the device; the queries are taken as they are.

        Args:
            queries: (queries, dim) unit vectors on the device of the index.
            k: neighbours a query, at most 1024.
            method: ``"scan"`` or ``"buckets"``; ``None``: by the number of queries.
        """
        k = _check_limit(k)
        if queries.dim() != 2 or queries.shape[1] != self.dim or queries.device.type != self.device.type:
            raise ValueError(
                f"queries must be (queries, {self.dim}) on {self.device},"
                f" got {tuple(queries.shape)} on {queries.device}"
            )
        if method is None:
            method = "scan" if len(queries) <= self.scan_batch else "buckets"
        if method not in ("scan", "buckets"):
            raise ValueError(f"method must be 'scan' or 'buckets', got {method!r}")
        most = BATCH_LIMIT if self.device.type == "cuda" else _CPU_BATCH
        with self._lock:
            if len(self._rows) == 0 or len(queries) == 0:
                return self._nothing(len(queries), k)
            if method == "buckets":
                self._merge_if_due()
            parts = [
                self._batch(queries[first : first + most].float(), k, method)
                for first in range(0, len(queries), most)
            ]
        if len(parts) == 1:
            return parts[0]
        return Found(torch.cat([part.scores for part in parts]), torch.cat([part.ids for part in parts]))

    def search_within(self, queries: ArrayLike, ids: ArrayLike, k: int) -> Neighbours:
        """The k nearest of each query among these ids, exactly."""
        asked = check_units("queries", queries, self.dim)
        return self._exact(asked, check_ids("ids", ids), _check_limit(k))

    def search_marked(self, queries: ArrayLike, k: int, ids: Ids, kept: NDArray[np.bool_]) -> Neighbours:
        """The k nearest of each query among the kept ones of many rising ids, exactly."""
        asked = check_units("queries", queries, self.dim)
        return self._exact(asked, ids[kept], _check_limit(k))

    def eager(self, queries: Tensor, k: int, method: Method) -> tuple[Tensor, ...]:
        """(scores, ids) of one batch outside a graph, so that a caller can capture or time it himself.

        Args:
            queries: (queries, dim) float32 on the device.
            k: neighbours.
            method: how.
        """
        with self._lock:
            if method == "buckets":
                self._merge_if_due()
            return self._run(queries, _check_limit(k), method)

    def _merge_if_due(self) -> None:
        tables = self._tables
        due = tables is None or self.tail > TAIL_LIMIT
        if due or (tables is not None and self._dead_hashed > _DEAD_SHARE * tables.hashed):
            self.merge()

    def _batch(self, queries: Tensor, k: int, method: Method) -> Found:
        """One graph's worth of queries, filled up to a power of two."""
        asked = len(queries)
        size = 1 << (asked - 1).bit_length()
        if self.device.type == "cuda" and size != asked:
            queries = torch.cat([queries, queries[:1].expand(size - asked, -1)])
        key = (method, len(queries), k, self._scanned(), self._tail_room())
        scores, ids = self._graphs.run(key, lambda batch: self._run(batch, k, method), queries)
        if self.device.type == "cuda":
            # The next replay writes to the same memory.
            return Found(scores[:asked].clone(), ids[:asked].clone())
        return Found(scores[:asked], ids[:asked])

    def _run(self, queries: Tensor, k: int, method: Method) -> tuple[Tensor, Tensor]:
        found = self._scan(queries, k) if method == "scan" else self._probe(queries, k)
        ids = self._rows.ids[found.rows.clamp_min(0)].masked_fill(found.rows < 0, -1)
        return found.scores, ids

    def _scan(self, queries: Tensor, k: int) -> Ranked:
        rows, packed = self._rows, self._signs.queries(queries)
        stop = self._scanned()
        listed = hamming_top(
            rows.scanned[:, :stop],
            packed.signs,
            min(max(self.scan_rerank, k), stop),
            planes=packed.planes,
            alive=rows.alive[:stop],
            impl=self.impl,
        )
        return rerank_top(rows.vectors, queries, listed, k, impl=self.impl)

    def _probe(self, queries: Tensor, k: int) -> Ranked:
        rows, tables = self._rows, self._tables
        assert tables is not None  # Merged before.
        packed = self._signs.queries(queries)
        effort = self._effort._replace(rerank=max(self.rerank, k))
        found = candidates(self._hash, tables, rows.codes, queries.half(), packed, effort, impl=self.impl)
        self._overflow += torch.stack([(found.overflow > 0).sum(), found.overflow.sum()])
        room = self._tail_room()
        best = rerank_top(
            rows.vectors, queries, found.rows, k, alive=rows.alive, lengths=found.lengths, impl=self.impl
        )
        if room == 0:
            return best
        tail = torch.arange(tables.hashed, tables.hashed + room, dtype=torch.int32, device=self.device)
        tail = torch.where(tail < rows.capacity, tail, -1).expand(len(queries), room)
        both = torch.cat([best.rows.to(torch.int32), tail], 1)
        return rerank_top(rows.vectors, queries, both, k, alive=rows.alive, impl=self.impl)

    def _scanned(self) -> int:
        """Rows that a scan reads: a few more than there are, so that few sizes occur."""
        return min(-(-self._rows.count // _SCAN_STEP) * _SCAN_STEP, self._rows.capacity)

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
        """Write one file with the living vectors and their ids; codes and tables are made again."""
        with self._lock:
            rows = self._rows
            kept = np.flatnonzero(rows.host_alive)
            vectors = rows.vectors[torch.from_numpy(kept).to(self.device)].cpu().numpy()
            numbers: dict[str, str | int] = {name: getattr(self, name) for name in _NUMBERS}
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
        ids = file.array("ids", np.int64, (None,))
        vectors = file.array("vectors", np.float16, (len(ids), index.dim))
        # Copied to memory that may be written to, as torch wants it.
        index.add_tensor(torch.from_numpy(np.array(vectors)), np.array(ids))
        return index


def _check_limit(k: int) -> int:
    k = check_k(k)
    if k > K_LIMIT:
        raise ValueError(f"k must be at most {K_LIMIT}, got {k}")
    return k
