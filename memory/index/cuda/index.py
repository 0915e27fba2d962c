"""Vector index on a GPU."""

from __future__ import annotations

import math
import os
import threading
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from memory.errors import IndexUnavailableError
from memory.index.calibration import calibrate
from memory.index.cuda import efforts
from memory.index.cuda.cells import PIVOT_LIMIT, pivots_for, sizes_for
from memory.index.cuda.layout import PROBE_LIMIT
from memory.index.cuda.rerank import K_LIMIT
from memory.index.cuda.sorted_rows import ROOM, DeviceNeighbours, SortedRows
from memory.index.effort import EXACT, USUAL, Effort, IndexCalibration, check_aim, choose_effort
from memory.index.files import load_arrays, save_arrays
from memory.index.neighbours import (
    Among,
    Floats,
    Ids,
    Neighbours,
    check_dim,
    check_ids,
    check_k,
    check_units,
    empty_answer,
)
from sparse_core.kernels.op import Impl

Method = Literal["cells", "scan"]
_KIND = "cuda"
_NUMBERS = ("dim", "pivots", "probes", "capacity", "rerank", "scan_rerank", "seed")


class CudaIndex:
    """Half-precision vectors on a device, found by cells and packed codes and compared exactly.

    Nothing is trained: the pivots of the cells are rows drawn from the seed, and the codes are signs and
    sizes along random directions (:mod:`memory.index.cuda.cells`, :mod:`memory.index.cuda.codes`). Shapes are
    fixed, and nothing is read back. On a GPU, a search by aim or method is one CUDA graph, captured at the
    first search of its size (a power of two). On a CPU, the same steps run in plain torch.

    Rows added after :meth:`merge` are compared with every query until the next merge. A row takes 64 bytes of
    codes, its half-precision vector, and 18 bytes of places, id and flags. Results depend on the seed and on
    what was added in which portions, never on time.

    How many cells hold the nearest depends on the vectors. So the first search by aim measures it on the
    index's own rows, and again when these have doubled (:mod:`memory.index.calibration`). Searches then use
    the cheapest method that reaches the aim: some cells, a scan of all codes, or comparing all rows.
    :meth:`describe` reports which. Searches among some rows compare all of them.

    Args:
        dim: length of a vector.
        device: ``"cuda"`` or ``"cpu"``.
        pivots: number of cells, at most 32768; 0: a power of two with 48 to 610 rows per cell.
        probes: cells read per query with ``method="cells"``, at most 128; more for more than 64 neighbours.
            0: as many as hold about 14,700 rows, from 24 to 128; up to 65,536 rows are read as a whole.
        capacity: room for the rows of these cells; see :attr:`overflow`. 0: 24,576 rows, two thirds more than
            the cells hold on average, or all rows if all are read.
        rerank: most rows of lowest distance that ``method="cells"`` compares exactly; at least four per
            neighbour.
        scan_rerank: rows of lowest distance that ``method="scan"`` compares.
        seed: seed of pivots and directions.
        impl: ``"reference"``, ``"triton"`` or ``"auto"``.

    Attributes:
        dim, pivots, ..., seed: as given.
        generation: the store's generation that the index reflects; saved in its file, not used here.
        identity: identity of the store's history up to there; saved like ``generation``.
        calibration: measured recall of the efforts; ``None`` before the first search by aim.

    Raises:
        IndexUnavailableError: torch cannot use the device.
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
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise IndexUnavailableError(
                "a CudaIndex needs an NVIDIA GPU, but torch finds none."
                ' Use LSHIndex on a CPU, or device="cpu" to run the same steps slowly'
            )
        for name, number in (("rerank", rerank), ("scan_rerank", scan_rerank)):
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        for name, number, most in (
            ("pivots", pivots, PIVOT_LIMIT),
            ("probes", probes, PROBE_LIMIT),
            ("capacity", capacity, ROOM),
        ):
            if not 0 <= number <= most:
                raise ValueError(f"{name} must be from 0 to {most}, got {number}")
        if seed < 0:
            raise ValueError(f"seed must not be negative, got {seed}")
        self.pivots, self.probes, self.capacity = pivots, probes, capacity
        self.rerank, self.scan_rerank, self.seed = rerank, scan_rerank, seed
        self.impl: Impl = impl
        self.generation = 0
        self.identity = ""
        self.calibration: IndexCalibration | None = None
        self._sorted = SortedRows(
            self.dim, self.device, pivots=pivots, capacity=capacity, seed=seed, impl=impl
        )
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._sorted.rows)

    @property
    def positions(self) -> int:
        """Number of rows, including removed ones."""
        return self._sorted.rows.count

    def stored(self, start: int, stop: int, *, most: int | None = None) -> tuple[Ids, Floats]:
        """Return ids and (rows, dim) vectors of the first ``most`` living rows between two positions."""
        with self._lock:
            return self._sorted.rows.stored(start, stop, most)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays on the device."""
        cells = self._sorted.cells
        return self._sorted.rows.nbytes + (cells.nbytes if cells else 0)

    @property
    def tail(self) -> int:
        """Number of rows that are in no cell yet; searches find them too."""
        return self._sorted.tail

    @property
    def cells(self) -> int:
        """Number of cells since the last merge."""
        return self._sorted.pivots

    @property
    def overflow(self) -> tuple[int, int]:
        """Queries whose cells exceeded ``capacity`` so far, and the rows left out.

        Reading it waits for the device. Queries that measure the index, and those that fill a batch up to a
        power of two, count too.
        """
        queries, rows = self._sorted.overflow.tolist()
        return int(queries), int(rows)

    def add(self, vectors: ArrayLike, ids: ArrayLike, *, merge: bool = True) -> None:
        """Add (rows, dim) unit vectors under (rows,) new ids; the next search sorts in a long tail.

        Args:
            vectors: (rows, dim).
            ids: (rows,) int64.
            merge: has no effect, because nothing is sorted here.

        Raises:
            ValueError: not unit vectors, or an id exists already; nothing is added.
        """
        array = check_units("vectors", vectors, self.dim)
        self.add_tensor(torch.from_numpy(array if array.flags.writeable else array.copy()), ids)

    def add_tensor(self, vectors: Tensor, ids: ArrayLike) -> None:
        """Add a tensor of any floating type on any device, like :meth:`add`."""
        keys = check_ids("ids", ids)
        with self._lock:
            self._sorted.rows.check(vectors, keys)
            self._sorted.add(vectors, keys)

    def remove(self, ids: ArrayLike) -> int:
        """Exclude these ids from searches and return how many existed; a merge frees their space."""
        keys = check_ids("ids", ids)
        with self._lock:
            return self._sorted.remove(keys)

    def merge(self, *, whole: bool = False) -> None:
        """Sort the tail into the cells, and drop the removed rows.

        Args:
            whole: draw new pivots among the living rows; this also happens whenever these have doubled.
        """
        with self._lock:
            if self._sorted.merge(whole=whole):
                self.calibration = None  # It belongs to the old cells.

    def compact(self) -> None:
        """Free the space of removed rows, and sort the others again by rising id."""
        with self._lock:
            if self._sorted.compact():
                self.calibration = None

    def search(
        self,
        queries: ArrayLike,
        k: int,
        *,
        among: Among | None = None,
        aim: float | None = None,
        effort: Effort | None = None,
    ) -> Neighbours:
        """Return the k nearest rows of each query that the effort finds.

        Args:
            queries: (queries, dim) unit vectors.
            k: neighbours per query; above 1024, all rows are compared.
            among: rows to choose from, all of them compared; ``None`` for all rows.
            aim: share of the ten nearest to find; ``None``: 0.95. 1 compares all rows.
            effort: explicit effort instead of ``aim``, without a graph.

        Raises:
            ValueError: not unit vectors, k below 1, or an aim that is not above 0 and at most 1.
        """
        asked = check_units("queries", queries, self.dim)
        k = min(check_k(k), max(len(self), 1))
        with self._lock:
            graphs = effort is None
            if among is not None and aim is not None:
                check_aim(aim)
            if effort is None and (among is not None or aim == 1.0):
                effort = EXACT  # Comparing everything needs neither sorting nor measuring.
            elif effort is None:
                effort = self._prepare(USUAL if aim is None else aim, len(asked))
            if len(self) == 0 or len(asked) == 0:
                return empty_answer(len(asked), k)
            on_device = torch.from_numpy(asked.copy()).to(self.device)
            if among is not None or effort == EXACT or k > K_LIMIT:
                found = self._sorted.exact(on_device, self._sorted.places(among), k)
            else:
                self._merge_if_due()
                found = self._sorted.search(on_device, k, effort, graphs=graphs)
            return Neighbours(found.scores.cpu().numpy(), found.ids.cpu().numpy())

    def search_tensor(
        self, queries: Tensor, k: int, *, method: Method | None = None, aim: float = USUAL
    ) -> DeviceNeighbours:
        """Return the k nearest rows of each query, all on the device; the queries are not checked.

        Args:
            queries: (queries, dim) unit vectors on the index's device.
            k: neighbours per query, at most 1024.
            method: ``"cells"`` or ``"scan"`` with the index's own sizes and no aim; ``None``: by ``aim``.
            aim: share of the ten nearest to find.
        """
        k = check_k(k)
        if k > K_LIMIT:
            raise ValueError(f"k must be at most {K_LIMIT}, got {k}")
        if queries.dim() != 2 or queries.shape[1] != self.dim or queries.device.type != self.device.type:
            raise ValueError(
                f"queries must be (queries, {self.dim}) on {self.device},"
                f" got {tuple(queries.shape)} on {queries.device}"
            )
        with self._lock:
            self._merge_if_due()
            effort = self._prepare(aim, len(queries)) if method is None else self.effort_of(method)
            if len(self) == 0 or len(queries) == 0:
                return self._sorted.empty_answer(len(queries), k)
            if effort == EXACT:
                return self._sorted.exact(queries.float(), self._sorted.places(None), k)
            return self._sorted.search(queries.float(), k, effort, graphs=True)

    def eager(self, queries: Tensor, k: int, effort: Effort) -> tuple[Tensor, ...]:
        """Return (scores, ids) of one batch without a graph, so that a caller can capture or time it.

        Args:
            queries: (queries, dim) float32 on the device.
            k: neighbours, at most 1024.
            effort: effort other than :data:`memory.index.effort.EXACT`.
        """
        with self._lock:
            self._merge_if_due()
            return tuple(self._sorted.run(queries, check_k(k), effort))

    def effort_of(self, method: Method) -> Effort:
        """Return the effort of ``method="cells"`` or ``"scan"`` with the index's own sizes."""
        if method == "scan":
            return Effort(efforts.SCAN, self.scan_rerank)
        if method != "cells":
            raise ValueError(f"method must be 'cells' or 'scan', got {method!r}")
        with self._lock:
            self._merge_if_due()
            cells = self._sorted.cells
            assert cells is not None  # The merge created them.
            return Effort(self.probes or sizes_for(cells.hashed, cells.pivots)[0], self.rerank)

    def effort(self, aim: float, *, queries: int = 1) -> Effort:
        """Return the effort for an aim and a number of queries asked together; see :meth:`search`."""
        return choose_effort(
            self.calibration,
            aim,
            usual=lambda aim: self.effort_of("scan"),
            price=lambda effort: self.price(effort, queries=queries),
            exact_price=self.price(EXACT, queries=queries),
            patience=math.inf,
        )

    def price(self, effort: Effort, *, queries: int = 1) -> float:
        """Return nanoseconds per query if so many are asked together."""
        return efforts.price(effort, len(self), self.cells, queries)

    def efforts(self, after: Effort | None = None) -> tuple[Effort, ...]:
        """Return the smallest effort, or the next ones: more cells, more rows, the scan of all codes."""
        return efforts.next_efforts(after, self.cells or pivots_for(len(self))) if len(self) else ()

    def describe(self, aim: float, *, share: float = 1.0) -> str:
        """Describe what a single query does for an aim; a share of the rows is always compared exactly."""
        return efforts.describe(EXACT if share < 1.0 else self.effort(aim), self.cells)

    def _prepare(self, aim: float, queries: int) -> Effort:
        """Sort and measure if needed, and return the effort for an aim."""
        self._merge_if_due()
        stale = self.calibration is None or self.calibration.stale(len(self))
        if len(self) and stale and check_aim(aim) < 1.0:
            calibrate(self)
        return self.effort(aim, queries=queries)

    def _merge_if_due(self) -> None:
        if self._sorted.is_due:
            self.merge()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one file with the living vectors and their ids; loading computes codes and cells again."""
        with self._lock:
            rows = self._sorted.rows
            kept = np.flatnonzero(rows.alive())
            vectors = rows.vectors[torch.from_numpy(kept).to(self.device)].cpu().numpy()
            header: dict[str, str | int] = {name: getattr(self, name) for name in (*_NUMBERS, "cells")}
            header |= {"generation": self.generation, "identity": self.identity}
            if self.calibration is not None:
                header["calibration"] = self.calibration.to_text()
            arrays: dict[str, NDArray[Any]] = {"ids": rows.ids()[kept], "vectors": vectors}
        return save_arrays(path, _KIND, header, arrays)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, device: str | torch.device = "cuda", impl: Impl = "auto"
    ) -> CudaIndex:
        """Read a file of :meth:`save`.

        Raises:
            FileNotFoundError: the file does not exist.
            IndexUnavailableError: torch cannot use the device.
            ValueError: damaged, or another kind of file.
        """
        file = load_arrays(path, _KIND)
        numbers = {name: file.number(name) for name in _NUMBERS}
        index = cls(numbers.pop("dim"), device=device, impl=impl, **numbers)
        index.generation = file.number("generation")
        index.identity = file.header.get("identity", "")
        ids = file.array("ids", np.int64, (None,))
        vectors = file.array("vectors", np.float16, (len(ids), index.dim))
        # torch needs writable memory.
        index.add_tensor(torch.from_numpy(np.array(vectors)), np.array(ids))
        # The first search creates the cells; the calibration still holds for the same number of cells.
        if file.number("cells") == min(index.pivots or pivots_for(len(ids)), max(len(ids), 1)):
            index.calibration = IndexCalibration.of_text(file.header.get("calibration"))
        return index
