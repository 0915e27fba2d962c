"""Inverted lists by faiss (optional), for the long-term tier: flat, or RaBitQ and exact scores."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.index.effort import EXACT, MEASURED_K, USUAL, Calibration, Effort, chosen
from memory.index.files import load_arrays, save_arrays
from memory.index.neighbours import (
    Floats,
    Ids,
    Marked,
    Neighbours,
    best,
    check_dim,
    check_k,
    check_units,
    single,
)
from memory.index.planner import exact_price
from memory.index.rows import Rows

Lists = Literal["flat", "rabitq"]
LISTS: tuple[Lists, ...] = ("flat", "rabitq")
_KIND = "faiss"
_ROWS_AT_ONCE = 16384
_QUERIES_AT_ONCE = 64
# Nanoseconds of one core: a call, a query, a row of a list that is read, a row that is compared exactly.
_CALL, _QUERY, _COMPARED = 200_000.0, 50_000.0, 700.0
_READ: dict[Lists, float] = {"flat": 40.0, "rabitq": 12.0}
_MOST_REFINE = 64


def faiss_module() -> ModuleType:
    """The faiss package.

    Raises:
        ImportError: not installed; says how to install it.
    """
    try:
        import faiss
    except ImportError as error:
        raise ImportError("this index needs faiss: pip install faiss-cpu") from error
    module: ModuleType = faiss
    return module


class FaissIndex:
    """IVF of faiss, with tombstones for what is removed and exact scores from half-precision vectors.

    Until it is trained every row is compared exactly. RaBitQ keeps a bit a dimension (Gao and Long, "RaBitQ",
    SIGMOD 2024).

    Args:
        dim: of a vector.
        lists: what the inverted lists hold: ``"flat"`` vectors or ``"rabitq"`` codes.
        cells: inverted lists; a few times the square root of the rows is usual.
        probes: lists a query reads until the index is calibrated.
        refine: rows that are compared exactly until then, as a multiple of k; with flat lists 1 is exact.
        seed: of the clustering.

    Attributes:
        dim, lists, cells, probes, refine, seed: as given.
        generation: how far the index follows the store; kept in its file, used by nobody here.
        identity: of the store's history up to there; likewise.
        calibration: what efforts find, see :func:`memory.index.calibration.calibrate`; ``None`` before.

    Raises:
        ImportError: faiss is not installed.
    """

    def __init__(
        self,
        dim: int,
        *,
        lists: Lists = "rabitq",
        cells: int = 1024,
        probes: int = 16,
        refine: int = 10,
        seed: int = 0,
    ) -> None:
        faiss = faiss_module()
        self.dim = check_dim(dim)
        if lists not in LISTS:
            raise ValueError(f"lists must be one of {', '.join(LISTS)}; got {lists!r}")
        for name, number in (("cells", cells), ("probes", probes), ("refine", refine)):
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        self.lists: Lists = lists
        self.cells = cells
        self.probes = probes
        self.refine = refine
        self.seed = seed
        self.generation = 0
        self.identity = ""
        self.calibration: Calibration | None = None
        self._rows = Rows(self.dim)
        name = "Flat" if lists == "flat" else "RaBitQ"
        self._index: Any = faiss.index_factory(self.dim, f"IVF{cells},{name}", faiss.METRIC_INNER_PRODUCT)
        self._index.cp.seed = seed + 1
        # The lists change while they are read otherwise: faiss locks neither.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def trained(self) -> bool:
        """Whether the lists are in use."""
        return bool(self._index.is_trained)

    @property
    def positions(self) -> int:
        """Rows, removed ones included."""
        return self._rows.count

    def stored(self, start: int, stop: int, *, most: int | None = None) -> tuple[Ids, Floats]:
        """Ids and (rows, dim) vectors of the living rows from start to stop, the first ``most`` of them."""
        return self._rows.stored(start, stop, most)

    @property
    def nbytes(self) -> int:
        """Bytes of vectors, ids and codes."""
        return self._rows.nbytes + int(self._index.ntotal) * (int(self._index.code_size) + 8)

    def train(self, sample: ArrayLike | None = None) -> None:
        """Find the cells, and sort the rows that are here into them.

        Args:
            sample: (rows, dim) unit vectors, at least as many as cells; ``None``: the rows that are here.

        Raises:
            ValueError: too small a sample, or trained already.
        """
        with self._lock:
            if self.trained:
                raise ValueError("the index is trained already: make a new one")
            if sample is None:
                array = single(self._rows.vectors.between(0, self._rows.count))
            else:
                array = check_units("sample", sample, self.dim)
            if len(array) < self.cells:
                raise ValueError(f"a sample of {len(array)} rows is too small for {self.cells} cells")
            # faiss warns on the console below this many rows a cell.
            self._index.cp.min_points_per_centroid = 1
            self._index.train(array)
            self._fill()
            self.calibration = None

    @property
    def tail(self) -> int:
        """Nothing is left to sort: rows go into the lists as they come."""
        return 0

    def merge(self, *, whole: bool = False) -> None:
        """There is nothing to do."""

    def add(self, vectors: ArrayLike, ids: ArrayLike, *, merge: bool = True) -> None:
        """Add (rows, dim) unit vectors under (rows,) new ids.

        Args:
            vectors: (rows, dim).
            ids: (rows,) int64.
            merge: makes no difference.

        Raises:
            ValueError: not unit vectors, or an id that is there; nothing is added.
        """
        with self._lock:
            self._rows.add(vectors, ids)
            if self.trained:
                self._fill()

    def _fill(self) -> None:
        """Put the rows that are not in the lists there; a row's number in faiss is its position."""
        for first in range(int(self._index.ntotal), self._rows.count, _ROWS_AT_ONCE):
            last = min(first + _ROWS_AT_ONCE, self._rows.count)
            self._index.add(single(self._rows.vectors.between(first, last)))

    def remove(self, ids: ArrayLike) -> int:
        """Leave these out from now on; the number that was there. Space comes back with a new index."""
        with self._lock:
            return self._rows.remove(ids)

    def search(
        self,
        queries: ArrayLike,
        k: int,
        *,
        allowed: ArrayLike | None = None,
        marked: Marked | None = None,
        probes: int | None = None,
        aim: float | None = None,
        effort: Effort | None = None,
    ) -> Neighbours:
        """The k nearest of each query, as far as its lists hold them.

        Args:
            queries: (queries, dim) unit vectors.
            k: neighbours a query.
            allowed: (ids,) to choose from; ``None`` for all.
            marked: instead of ``allowed``: which of many rising ids to choose from. The fewer they are, the
                more lists are read, within bounds.
            probes: instead of that of the index.
            aim: share of the ten nearest that is to be found, where the index is calibrated; ``None``: 0.95.
                Where comparing all rows takes less, that is done; many queries at once share its cost.
            effort: instead of ``aim`` and ``probes``.
        """
        asked = check_units("queries", queries, self.dim)
        k = check_k(k)
        if effort is None:
            if probes is None:
                effort = self.effort(USUAL if aim is None else aim, queries=len(asked))
            else:
                effort = Effort(probes, self.refine * MEASURED_K)
        count = self._rows.count
        if effort == EXACT or not self.trained or count == 0:
            return self._rows.exact(asked, k, 0, count, self._rows.mask(count, allowed, marked))
        with self._lock:
            count = self._rows.count
            mask = self._rows.mask(count, allowed, marked)
            if mask is not None and marked is not None:
                effort = effort.for_share(np.count_nonzero(mask) / count)
            # The multiple of k that is usual with faiss.
            wanted = max(k, -(-k * effort.rerank // MEASURED_K))
            places = self._candidates(asked, min(wanted, count), mask, effort.probes)
            return self._compared(asked, places, k)

    def effort(self, aim: float, *, queries: int = 1) -> Effort:
        """What is done for an aim where so many queries are asked together; see :meth:`search`."""
        return chosen(
            self.calibration,
            aim,
            usual=lambda aim: Effort(self.probes, self.refine * MEASURED_K),
            price=lambda effort: self.price(effort, queries=queries),
            exact_price=exact_price(len(self), queries),
        )

    def price(self, effort: Effort, *, queries: int = 1) -> float:
        """Nanoseconds a query, where so many are asked together."""
        if effort == EXACT:
            return exact_price(len(self), queries)
        read = min(effort.probes, self.cells) * len(self) / self.cells
        fixed = _CALL / max(1, queries) + _QUERY
        return fixed + _READ[self.lists] * read + _COMPARED * effort.rerank

    def efforts(self, after: Effort | None = None) -> tuple[Effort, ...]:
        """The least effort, or after one twice the lists, half as many rows again, or both.

        None before the index is trained, as long as all rows are compared.
        """
        if not self.trained:
            return ()
        if after is None:
            return (Effort(1, MEASURED_K if self.lists == "flat" else 4 * MEASURED_K),)
        probes, rerank = 2 * after.probes, -(-3 * after.rerank // 2)
        further = [Effort(probes, after.rerank)]
        if self.lists != "flat":
            further += [Effort(after.probes, rerank), Effort(probes, rerank)]
        most = _MOST_REFINE * MEASURED_K
        return tuple(one for one in further if one.probes <= self.cells and one.rerank <= most)

    def search_within(self, queries: ArrayLike, ids: ArrayLike, k: int) -> Neighbours:
        """The k nearest of each query among these ids: their vectors are gathered and compared exactly."""
        return self._rows.search_within(queries, ids, k)

    def search_marked(self, queries: ArrayLike, k: int, ids: Ids, kept: NDArray[np.bool_]) -> Neighbours:
        """The k nearest of each query among the kept ones of many rising ids: all rows are compared."""
        return self._rows.search_marked(queries, k, ids, kept)

    def _candidates(
        self, queries: Floats, count: int, mask: NDArray[np.bool_] | None, probes: int
    ) -> NDArray[np.int64]:
        """(queries, count) positions, -1 where there are fewer."""
        faiss = faiss_module()
        settings = {"nprobe": min(probes, self.cells)}
        if mask is not None:
            packed = np.packbits(mask, bitorder="little")
            settings["sel"] = faiss.IDSelectorBitmap(packed)
        kind = faiss.SearchParametersIVF if self.lists == "flat" else faiss.IVFRaBitQSearchParameters
        places: NDArray[np.int64] = self._index.search(queries, count, params=kind(**settings))[1]
        return places

    def _compared(self, queries: Floats, places: NDArray[np.int64], k: int) -> Neighbours:
        """The k best of (queries, count) positions, by exact scores."""
        answers = []
        for first in range(0, len(queries), _QUERIES_AT_ONCE):
            some = places[first : first + _QUERIES_AT_ONCE]
            distinct, inverse = np.unique(np.maximum(some, 0), return_inverse=True)
            vectors = single(self._rows.vectors.take(distinct))[inverse.reshape(some.shape)]
            scores = np.einsum("qcd,qd->qc", vectors, queries[first : first + _QUERIES_AT_ONCE])
            scores[some < 0] = -np.inf
            answers.append(best(scores, np.maximum(some, 0), k, names=self._rows.ids()))
        if not answers:
            return Neighbours(np.empty((0, k), np.float32), np.empty((0, k), np.int64))
        return Neighbours(
            np.concatenate([found.scores for found in answers]),
            np.concatenate([found.ids for found in answers]),
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one file; :meth:`load` maps the vectors and reads the lists."""
        with self._lock:
            count = self._rows.count
            arrays = {
                "ids": self._rows.ids(),
                "vectors": self._rows.vectors.between(0, count),
                "alive": self._rows.alive().astype(np.uint8),
                "lists": faiss_module().serialize_index(self._index),
            }
            header = {"lists": self.lists, **{name: getattr(self, name) for name in (*_NUMBERS, "identity")}}
            if self.calibration is not None:
                header["calibration"] = self.calibration.to_text()
        return save_arrays(path, _KIND, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FaissIndex:
        """Open a file of :meth:`save`. Open only files of your own: faiss does not check what it reads.

        Raises:
            FileNotFoundError: no such file.
            ValueError: damaged or another kind of file.
        """
        faiss = faiss_module()
        file = load_arrays(path, _KIND)
        numbers = {name: file.number(name) for name in _NUMBERS}
        generation = numbers.pop("generation")
        lists = next((known for known in LISTS if known == file.header.get("lists")), None)
        if lists is None:
            raise ValueError(f"{path}: lists is {file.header.get('lists')!r}: delete it, it is built again")
        index = cls(numbers.pop("dim"), lists=lists, **numbers)
        index.generation = generation
        index.identity = file.header.get("identity", "")
        index.calibration = Calibration.of_text(file.header.get("calibration"))
        ids = file.array("ids", np.int64, (None,))
        count = len(ids)
        alive = file.array("alive", np.uint8, (count,)).astype(np.bool_)
        index._rows = Rows(index.dim, file.array("vectors", np.float16, (count, index.dim)), ids, alive)
        try:
            index._index = faiss.deserialize_index(np.array(file.array("lists", np.uint8, (None,))))
        except RuntimeError as error:
            raise ValueError(f"{path}: damaged ({error}); delete it, it is built again") from error
        stored = (index._index.d, index._index.ntotal if index.trained else count)
        if stored != (index.dim, count):
            raise ValueError(f"{path}: lists do not fit the vectors; delete it, it is built again")
        return index


_NUMBERS = ("dim", "cells", "probes", "refine", "seed", "generation")
