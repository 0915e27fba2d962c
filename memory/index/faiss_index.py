"""Inverted lists by faiss (optional), on a CPU or GPU, with exact scores."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self

from memory.errors import IndexUnavailableError
from memory.index.base import RowIndex, RowState, Search
from memory.index.effort import EXACT, MEASURED_K, Effort
from memory.index.files import IndexFile
from memory.index.neighbours import (
    Floats,
    Neighbours,
    check_dim,
    check_units,
    empty_answer,
    to_float32,
    top_k,
)
from memory.index.rows import Rows

Lists = Literal["flat", "half", "rabitq"]
Device = Literal["cpu", "cuda"]
LISTS: tuple[Lists, ...] = ("flat", "half", "rabitq")
_FACTORY: dict[Lists, str] = {"flat": "Flat", "half": "SQfp16", "rabitq": "RaBitQ"}
_ROWS_AT_ONCE = 16384
_QUERIES_AT_ONCE = 64
# Nanoseconds on one core: a call, a query, and a row that is compared exactly; below, a row of a list that is
# read.
_CALL, _QUERY, _COMPARED = 200_000.0, 50_000.0, 700.0
_READ: dict[Lists, float] = {"flat": 40.0, "half": 40.0, "rabitq": 12.0}
_MOST_REFINE = 64
# Nanoseconds per row of a flat index on an NVIDIA H200.
_READ_ON_GPU = 3.2
#: Rows requested from a GPU, as a multiple of the number expected to contain enough rows that count.
_SPARE = 2
#: Most neighbours and lists of a search on a GPU.
_MOST_ON_GPU = 2048


def faiss_module() -> ModuleType:
    """Import faiss.

    Raises:
        IndexUnavailableError: faiss is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise IndexUnavailableError("this index needs faiss: pip install 'sparsight[faiss]'") from error
    module: ModuleType = faiss
    return module


def gpu_module() -> ModuleType:
    """Import faiss with GPU support.

    Raises:
        IndexUnavailableError: faiss has no GPU support, or there is no GPU.
    """
    faiss = faiss_module()
    if not hasattr(faiss, "StandardGpuResources"):
        raise IndexUnavailableError(
            "this index needs faiss with GPU support, but the installed faiss has none."
            " Run pip uninstall faiss-cpu, then pip install 'sparsight[faiss-gpu]'"
        )
    if not faiss.get_num_gpus():
        raise IndexUnavailableError('this index needs an NVIDIA GPU, but faiss finds none. Use device="cpu"')
    return faiss


class FaissIndex(RowIndex[RowState]):
    """IVF index of faiss, with marks for removed rows and exact scores from half-precision vectors.

    Every row is compared exactly until the index is trained. RaBitQ keeps one bit per dimension (Gao and
    Long, "RaBitQ", SIGMOD 2024). Lists of ``"half"`` may lie on a GPU, where faiss can neither exclude nor
    remove rows. So a search requests more rows the smaller the share that counts, and drops the others from
    the answer. A query with too few left compares the rows that count, on the host.

    Args:
        dim: length of a vector.
        lists: content of the inverted lists: ``"flat"`` vectors, ``"half"``-precision vectors or ``"rabitq"``
            codes.
        cells: number of inverted lists, usually a few times the square root of the rows. 0, for ``"half"``
            only: no lists, and all rows are compared on the device.
        probes: lists read per query until the index is calibrated.
        refine: rows compared exactly until then, as a multiple of k; with whole vectors, 1 is exact.
        seed: seed of the clustering.
        device: ``"cpu"``, or ``"cuda"`` for lists of ``"half"``.

    Attributes:
        dim, lists, cells, probes, refine, seed, device: as given.

    Raises:
        IndexUnavailableError: faiss is not installed or lacks GPU support, or there is no GPU.
    """

    kind = "faiss"
    reads = "lists"
    words: ClassVar[dict[str, tuple[str, ...]]] = {"lists": LISTS}
    numbers = ("cells", "probes", "refine", "seed")

    def __init__(
        self,
        dim: int,
        *,
        lists: Lists = "rabitq",
        cells: int = 1024,
        probes: int = 16,
        refine: int = 10,
        seed: int = 0,
        device: Device = "cpu",
    ) -> None:
        faiss = faiss_module()
        super().__init__(dim, RowState(Rows(check_dim(dim))))
        if lists not in LISTS:
            raise ValueError(f"lists must be one of {', '.join(LISTS)}; got {lists!r}")
        for argument, number, least in (
            ("cells", cells, 0 if lists == "half" else 1), ("probes", probes, 1), ("refine", refine, 1)
        ):  # fmt: skip
            if number < least:
                raise ValueError(f"{argument} must be at least {least}, got {number}")
        if device not in ("cpu", "cuda") or (device == "cuda" and lists != "half"):
            raise ValueError(f'device must be "cpu", or "cuda" for lists of half, got {device!r} for {lists}')
        self.lists: Lists = lists
        self.device: Device = device
        self.cells = cells
        self.probes = probes
        self.refine = refine
        self.seed = seed
        name = f"IVF{cells},{_FACTORY[lists]}" if cells else "Flat"
        made = faiss.index_factory(self.dim, name, faiss.METRIC_INNER_PRODUCT)
        if cells:
            made.cp.seed = seed + 1
            # Below this many rows per cell, faiss prints a warning.
            made.cp.min_points_per_centroid = 1
        self._index: Any = self._move_to_device(made)

    def _move_to_device(self, index: Any) -> Any:
        """Return the lists on the index's device."""
        if self.device == "cpu":
            return index
        faiss = gpu_module()
        # Scratch space of the searches; it must outlive the lists.
        self._resources = faiss.StandardGpuResources()
        options = faiss.GpuClonerOptions()
        options.useFloat16 = True
        return faiss.index_cpu_to_gpu(self._resources, 0, index, options)

    @property
    def trained(self) -> bool:
        """True if the lists are in use."""
        return bool(self._index.is_trained)

    @property
    def nbytes(self) -> int:
        """Bytes of vectors, ids and codes."""
        bytes_a_row = {"flat": 4 * self.dim, "half": 2 * self.dim, "rabitq": self.dim // 8 + 8}[self.lists]
        return super().nbytes + int(self._index.ntotal) * (bytes_a_row + 8)

    def train(self, sample: ArrayLike | None = None) -> None:
        """Find the cells, and sort the present rows into them.

        Args:
            sample: (rows, dim) unit vectors, at least as many as cells; ``None``: the present rows.

        Raises:
            ValueError: the sample is too small, or the index is trained already.
        """
        with self._writing:
            if self.trained:
                raise ValueError("the index is trained already. Create a new one")
            if sample is None:
                array = to_float32(self._state.rows.vectors.between(0, self._state.rows.count))
            else:
                array = check_units("sample", sample, self.dim)
            if len(array) < self.cells:
                raise ValueError(
                    f"{len(array)} rows are too few for {self.cells} cells. Give a larger sample"
                )
            self._index.train(array)
            self._fill()
            self.calibration = None

    def merge(self, *, whole: bool = False) -> None:
        """Train the index with ``whole`` if there are enough rows; otherwise rows are sorted when added."""
        with self._writing:
            if whole and not self.trained and len(self) >= self.cells:
                self.train()

    def _index_new_rows(self) -> None:
        if self.trained:
            self._fill()

    def _fill(self) -> None:
        """Add the remaining rows to the lists; a row's number in faiss is its position."""
        for first in range(int(self._index.ntotal), self._state.rows.count, _ROWS_AT_ONCE):
            last = min(first + _ROWS_AT_ONCE, self._state.rows.count)
            self._index.add(to_float32(self._state.rows.vectors.between(first, last)))

    def _nearest(self, state: RowState, asked: Search) -> Neighbours:
        queries, k, count, mask, effort = asked
        if not self.trained or count == 0:
            return state.rows.exact(queries, k, 0, count, mask)
        # faiss expresses the compared rows as a multiple of k.
        wanted = max(k, -(-k * effort.rerank // MEASURED_K))
        # faiss does not lock its lists, so they must not change during a search.
        with self._writing:
            if mask is not None and self.lists == "half":
                return self._search_marked(queries, k, min(wanted, count), mask, effort.probes)
            if self.lists == "half" and wanted > _MOST_ON_GPU:
                return state.rows.exact(queries, k, 0, count, mask)
            places = self._candidates(queries, min(wanted, count), mask, effort.probes)
            return self._rerank(queries, places, k)

    def _search_marked(
        self, queries: Floats, k: int, wanted: int, mask: NDArray[np.bool_], probes: int
    ) -> Neighbours:
        """Return the k best marked rows from lists that cannot exclude the others."""
        rows, count = self._state.rows, len(mask)
        marked = int(np.count_nonzero(mask))
        if marked == 0:
            return empty_answer(len(queries), k)
        asked = min(count, -(-_SPARE * wanted * count // marked))
        if asked > _MOST_ON_GPU:
            return rows.exact(queries, k, 0, count, mask)
        places = self._candidates(queries, asked, None, probes)
        places = np.where((places >= 0) & mask[places], places, -1)
        found = self._rerank(queries, places, k)
        few = np.flatnonzero((places >= 0).sum(1) < min(k, marked))
        if len(few):
            found.scores[few], found.ids[few] = rows.exact(queries[few], k, 0, count, mask)
        return found

    def _describe(self, effort: Effort) -> str:
        where = "" if self.device == "cpu" else " on the GPU"
        return super()._describe(effort) + where if self.cells else f"all rows compared by faiss{where}"

    def _usual(self, aim: float) -> Effort:
        return Effort(self.probes, self.refine * MEASURED_K)

    def price(self, effort: Effort, *, queries: int = 1) -> float:
        """Return nanoseconds per query on one core if so many are asked together."""
        if effort == EXACT:
            return super().price(effort, queries=queries)
        read = min(effort.probes, self.cells) * len(self) / self.cells if self.cells else len(self)
        fixed = _CALL / max(1, queries) + _QUERY
        each = _READ_ON_GPU if self.device == "cuda" else _READ[self.lists]
        return fixed + each * read + _COMPARED * effort.rerank

    def efforts(self, after: Effort | None = None) -> tuple[Effort, ...]:
        """Return the smallest effort, or the next ones: twice the lists, half as many rows again, or both.

        An untrained index has none, because it compares all rows.
        """
        if not (self.trained and self.cells):
            return ()
        if after is None:
            return (Effort(1, MEASURED_K if self.lists != "rabitq" else 4 * MEASURED_K),)
        probes, rerank = 2 * after.probes, -(-3 * after.rerank // 2)
        further = [Effort(probes, after.rerank)]
        if self.lists == "rabitq":
            further += [Effort(after.probes, rerank), Effort(probes, rerank)]
        most = _MOST_REFINE * MEASURED_K
        lists = min(self.cells, _MOST_ON_GPU) if self.lists == "half" else self.cells
        return tuple(one for one in further if one.probes <= lists and one.rerank <= most)

    def _candidates(
        self, queries: Floats, count: int, mask: NDArray[np.bool_] | None, probes: int
    ) -> NDArray[np.int64]:
        """Return (queries, count) positions; -1 fills missing ones."""
        if not self.cells:
            found: NDArray[np.int64] = self._index.search(queries, count)[1]
            return found
        faiss = faiss_module()
        settings = {"nprobe": min(probes, self.cells, _MOST_ON_GPU if self.lists == "half" else self.cells)}
        if mask is not None and self.lists != "half":
            packed = np.packbits(mask, bitorder="little")
            settings["sel"] = faiss.IDSelectorBitmap(packed)
        kind = faiss.IVFRaBitQSearchParameters if self.lists == "rabitq" else faiss.SearchParametersIVF
        # faiss.contrib.torch_utils, which other code may import, replaces search by one without params.
        search = getattr(self._index, "search_numpy", self._index.search)
        places: NDArray[np.int64] = search(queries, count, params=kind(**settings))[1]
        return places

    def _rerank(self, queries: Floats, places: NDArray[np.int64], k: int) -> Neighbours:
        """Return the k best of (queries, count) positions by exact scores."""
        answers = []
        for first in range(0, len(queries), _QUERIES_AT_ONCE):
            some = places[first : first + _QUERIES_AT_ONCE]
            distinct, inverse = np.unique(np.maximum(some, 0), return_inverse=True)
            vectors = to_float32(self._state.rows.vectors.take(distinct))[inverse.reshape(some.shape)]
            scores = np.einsum("qcd,qd->qc", vectors, queries[first : first + _QUERIES_AT_ONCE])
            scores[some < 0] = -np.inf
            answers.append(top_k(scores, np.maximum(some, 0), k, names=self._state.rows.ids()))
        if not answers:
            return Neighbours(np.empty((0, k), np.float32), np.empty((0, k), np.int64))
        return Neighbours(
            np.concatenate([found.scores for found in answers]),
            np.concatenate([found.ids for found in answers]),
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: Device = "cpu") -> Self:
        """Open a file of :meth:`save`; it is never written to.

        Args:
            path: the file.
            device: device of the lists, independent of where they were saved.

        Raises:
            FileNotFoundError: the file does not exist.
            IndexUnavailableError: faiss is not installed, or not for this device.
            ValueError: damaged, or another kind of file.
        """
        index = super().load(path)
        if device != index.device:
            if index.lists != "half":
                raise ValueError(f"{path}: its lists hold {index.lists}. Only lists of half fit a GPU")
            index.device = device
            index._index = index._move_to_device(index._index)
        return index

    def _arrays(self) -> dict[str, NDArray[Any]]:
        faiss = faiss_module()
        index = self._index if self.device == "cpu" else faiss.index_gpu_to_cpu(self._index)
        return {"lists": faiss.serialize_index(index)}

    def _restore(self, file: IndexFile, rows: Rows) -> None:
        """Read the lists too; load only your own files, because faiss does not check what it reads."""
        fix = "Delete the file; it is built again"
        try:
            index = faiss_module().deserialize_index(np.array(file.array("lists", np.uint8, (None,))))
        except RuntimeError as error:
            raise ValueError(f"its lists are damaged ({error}). {fix}") from error
        stored = (index.d, index.ntotal if index.is_trained else rows.count)
        if stored != (self.dim, rows.count):
            raise ValueError(f"its lists do not fit its vectors. {fix}")
        self._state, self._index = RowState(rows), self._move_to_device(index)
