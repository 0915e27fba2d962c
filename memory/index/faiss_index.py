"""Inverted lists by faiss (optional), for the long-term tier: flat, or RaBitQ and exact scores."""

from __future__ import annotations

from types import ModuleType
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.index.base import Asked, Held, RowIndex
from memory.index.effort import EXACT, MEASURED_K, Effort
from memory.index.files import IndexFile
from memory.index.neighbours import Floats, Neighbours, best, check_dim, check_units, single
from memory.index.rows import Rows

Lists = Literal["flat", "rabitq"]
LISTS: tuple[Lists, ...] = ("flat", "rabitq")
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


class FaissIndex(RowIndex[Held]):
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

    Raises:
        ImportError: faiss is not installed.
    """

    kind = "faiss"
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
    ) -> None:
        faiss = faiss_module()
        super().__init__(dim, Held(Rows(check_dim(dim))))
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
        name = "Flat" if lists == "flat" else "RaBitQ"
        self._index: Any = faiss.index_factory(self.dim, f"IVF{cells},{name}", faiss.METRIC_INNER_PRODUCT)
        self._index.cp.seed = seed + 1

    @property
    def trained(self) -> bool:
        """Whether the lists are in use."""
        return bool(self._index.is_trained)

    @property
    def nbytes(self) -> int:
        """Bytes of vectors, ids and codes."""
        return super().nbytes + int(self._index.ntotal) * (int(self._index.code_size) + 8)

    def train(self, sample: ArrayLike | None = None) -> None:
        """Find the cells, and sort the rows that are here into them.

        Args:
            sample: (rows, dim) unit vectors, at least as many as cells; ``None``: the rows that are here.

        Raises:
            ValueError: too small a sample, or trained already.
        """
        with self._writing:
            if self.trained:
                raise ValueError("the index is trained already: make a new one")
            if sample is None:
                array = single(self._state.rows.vectors.between(0, self._state.rows.count))
            else:
                array = check_units("sample", sample, self.dim)
            if len(array) < self.cells:
                raise ValueError(f"a sample of {len(array)} rows is too small for {self.cells} cells")
            # faiss warns on the console below this many rows a cell.
            self._index.cp.min_points_per_centroid = 1
            self._index.train(array)
            self._fill()
            self.calibration = None

    def merge(self, *, whole: bool = False) -> None:
        """Rows go into the lists as they come; ``whole`` finds the cells where there are rows enough."""
        with self._writing:
            if whole and not self.trained and len(self) >= self.cells:
                self.train()

    def _take_in(self) -> None:
        if self.trained:
            self._fill()

    def _fill(self) -> None:
        """Put the rows that are not in the lists there; a row's number in faiss is its position."""
        for first in range(int(self._index.ntotal), self._state.rows.count, _ROWS_AT_ONCE):
            last = min(first + _ROWS_AT_ONCE, self._state.rows.count)
            self._index.add(single(self._state.rows.vectors.between(first, last)))

    def _nearest(self, state: Held, asked: Asked) -> Neighbours:
        queries, k, count, mask, effort = asked
        if not self.trained or count == 0:
            return state.rows.exact(queries, k, 0, count, mask)
        # The multiple of k that is usual with faiss.
        wanted = max(k, -(-k * effort.rerank // MEASURED_K))
        # The lists change while they are read otherwise: faiss locks neither.
        with self._writing:
            places = self._candidates(queries, min(wanted, count), mask, effort.probes)
            return self._compared(queries, places, k)

    def _usual(self, aim: float) -> Effort:
        return Effort(self.probes, self.refine * MEASURED_K)

    def price(self, effort: Effort, *, queries: int = 1) -> float:
        """Nanoseconds a query of one core, where so many are asked together."""
        if effort == EXACT:
            return super().price(effort, queries=queries)
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
            vectors = single(self._state.rows.vectors.take(distinct))[inverse.reshape(some.shape)]
            scores = np.einsum("qcd,qd->qc", vectors, queries[first : first + _QUERIES_AT_ONCE])
            scores[some < 0] = -np.inf
            answers.append(best(scores, np.maximum(some, 0), k, names=self._state.rows.ids()))
        if not answers:
            return Neighbours(np.empty((0, k), np.float32), np.empty((0, k), np.int64))
        return Neighbours(
            np.concatenate([found.scores for found in answers]),
            np.concatenate([found.ids for found in answers]),
        )

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"lists": faiss_module().serialize_index(self._index)}

    def _restore(self, file: IndexFile, rows: Rows) -> None:
        """Read the lists too; only of files of your own: faiss does not check what it reads."""
        again = "delete the file, it is built again"
        try:
            index = faiss_module().deserialize_index(np.array(file.array("lists", np.uint8, (None,))))
        except RuntimeError as error:
            raise ValueError(f"lists are damaged ({error}): {again}") from error
        stored = (index.d, index.ntotal if index.is_trained else rows.count)
        if stored != (self.dim, rows.count):
            raise ValueError(f"lists do not fit the vectors: {again}")
        self._state, self._index = Held(rows), index
