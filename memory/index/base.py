"""Common parts of the indexes with rows in host memory."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self

from memory.index.effort import EXACT, USUAL, Effort, IndexCalibration, check_aim, choose_effort
from memory.index.files import IndexFile, load_arrays, save_arrays
from memory.index.neighbours import Among, Floats, Ids, Neighbours, check_dim, check_k, check_units
from memory.index.planner import exact_price
from memory.index.rows import Rows

#: Largest tail: rows that are not sorted in yet and are compared with every query.
TAIL_LIMIT = 2048
# Number of cached effort choices.
_KEPT = 64


class State(Protocol):
    """Data of one search; replaced as a whole, so that searches need no lock."""

    @property
    def rows(self) -> Rows:
        """Vectors."""
        ...


class RowState(NamedTuple):
    """State of an index that consists of its rows only."""

    rows: Rows


class Search(NamedTuple):
    """A search that does not compare all rows.

    Attributes:
        queries: (queries, dim) unit vectors.
        total: number of rows at the start.
        mask: (total,) rows that count; ``None`` for all.
    """

    queries: Floats
    k: int
    total: int
    mask: NDArray[np.bool_] | None
    effort: Effort


StateT = TypeVar("StateT", bound=State)


class RowIndex(Generic[StateT]):
    """Base of indexes with half-precision vectors on the host.

    A subclass implements :meth:`_nearest`, its efforts, and how new rows are prepared and saved.

    Args:
        state: state of an empty index.

    Attributes:
        generation: the store's generation that the index reflects; saved in its file, not used here.
        identity: identity of the store's history up to there; saved like ``generation``.
        calibration: measured recall of the efforts, see :func:`memory.index.calibration.calibrate`, or
            ``None``.
    """

    #: Kind of index, as recorded in its files.
    kind: ClassVar[str]
    #: Constructor arguments that its files keep; for text arguments, the allowed values.
    numbers: ClassVar[tuple[str, ...]] = ()
    words: ClassVar[dict[str, tuple[str, ...]]] = {}
    #: Listed rows up to this share are gathered and compared at any effort.
    gathered_share: ClassVar[float] = 0.0
    #: Unit of a probe, for descriptions.
    reads: ClassVar[str] = "rows"
    #: True if its files keep removed rows, with marks.
    keeps_removed: ClassVar[bool] = True

    def __init__(self, dim: int, state: StateT) -> None:
        self.dim = check_dim(dim)
        self.generation = 0
        self.identity = ""
        self.calibration: IndexCalibration | None = None
        self._state = state
        self._writing = threading.RLock()
        #: Cached efforts by aim and number of queries, for one number of rows and one calibration.
        self._chosen: tuple[int, IndexCalibration | None, dict[tuple[float, int], Effort]] = (-1, None, {})

    def __len__(self) -> int:
        return len(self._state.rows)

    @property
    def positions(self) -> int:
        """Number of rows, including removed ones."""
        return self._state.rows.count

    def stored(self, start: int, stop: int, *, most: int | None = None) -> tuple[Ids, Floats]:
        """Return ids and (rows, dim) vectors of the first ``most`` living rows between two positions."""
        return self._state.rows.stored(start, stop, most)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self._state.rows.nbytes

    @property
    def tail(self) -> int:
        """Number of rows that :meth:`merge` has to sort; searches find them too."""
        return 0

    def merge(self, *, whole: bool = False) -> None:
        """Sort in the added rows; the base class has nothing to sort."""

    def add(self, vectors: ArrayLike, ids: ArrayLike, *, merge: bool = True) -> None:
        """Add (rows, dim) unit vectors under (rows,) new ids.

        Args:
            vectors: (rows, dim).
            ids: (rows,) int64.
            merge: sort a long tail at once; False leaves that to a later call of :meth:`merge`.

        Raises:
            ValueError: not unit vectors, or an id exists already; nothing is added.
        """
        with self._writing:
            self._state.rows.add(vectors, ids)
            self._index_new_rows()
        if merge and self.tail > TAIL_LIMIT:
            self.merge()

    def _index_new_rows(self) -> None:
        """Prepare the new rows for search."""

    def remove(self, ids: ArrayLike) -> int:
        """Exclude these ids from searches and return how many existed; only a new index frees their space."""
        with self._writing:
            return len(self._state.rows.remove(ids))

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
            k: neighbours per query; an answer has at most as many as there are rows.
            among: rows to choose from; ``None`` for all. The fewer are marked, the more rows are read, within
                limits. With an aim of 1, listed rows are gathered and compared, and marked rows are compared
                in one pass.
            aim: share of the ten nearest to find, if the index is calibrated; ``None``: 0.95. All rows are
                compared if that costs less, which is more likely for many queries at once.
            effort: explicit effort instead of ``aim``.

        Raises:
            ValueError: not unit vectors, k below 1, or an aim that is not above 0 and at most 1.
        """
        asked, k = check_units("queries", queries, self.dim), check_k(k)
        aim = USUAL if aim is None else check_aim(aim)
        state = self._state
        rows, count = state.rows, state.rows.count
        k = min(k, max(len(rows), 1))
        share = 1.0
        if among is None:
            mask = rows.living_mask(count)
        elif among.kept is None:
            positions = rows.among(count, among.ids)
            if aim == 1.0 or len(positions) <= self.gathered_share * count:
                return rows.within(asked, positions, k)
            mask = rows.position_mask(count, positions)
        else:
            mask = rows.kept_mask(count, np.asarray(among.ids), among.kept)
            share = np.count_nonzero(mask) / max(1, count)
        if effort is None and aim == 1.0:
            effort = EXACT
        elif effort is None:
            effort = self._effort_for(aim, len(asked), k).for_share(share)
        if effort == EXACT:
            return rows.exact(asked, k, 0, count, mask)
        return self._nearest(state, Search(asked, k, count, mask, effort))

    def _nearest(self, state: StateT, asked: Search) -> Neighbours:
        """Return the k best rows that the effort finds."""
        return state.rows.exact(asked.queries, asked.k, 0, asked.total, asked.mask)

    def effort(self, aim: float, *, queries: int = 1) -> Effort:
        """Return the effort for an aim and a number of queries asked together; see :meth:`search`."""
        rows, calibration, known = self._chosen
        if rows != len(self) or calibration is not self.calibration or len(known) >= _KEPT:
            rows, calibration, known = len(self), self.calibration, {}
            self._chosen = rows, calibration, known
        found = known.get((check_aim(aim), queries))
        if found is None:
            found = choose_effort(
                calibration,
                aim,
                usual=self._usual,
                price=lambda effort: self.price(effort, queries=queries),
                exact_price=exact_price(rows, queries),
            )
            known[aim, queries] = found
        return found

    def describe(self, aim: float, *, share: float = 1.0) -> str:
        """Describe what a single query does for an aim if this share of the rows counts."""
        effort = self.effort(aim).for_share(share)
        return "all rows compared" if effort == EXACT else self._describe(effort)

    def _describe(self, effort: Effort) -> str:
        return f"{effort.probes} {self.reads}, {effort.rerank} rows compared"

    def _usual(self, aim: float) -> Effort:
        """Return the effort for an aim before the index is calibrated."""
        return EXACT

    def _effort_for(self, aim: float, queries: int, k: int) -> Effort:
        """Return the effort for a number of neighbours."""
        return self.effort(aim, queries=queries)

    def price(self, effort: Effort, *, queries: int = 1) -> float:
        """Return nanoseconds per query on one core, by default those of comparing all rows."""
        return exact_price(len(self), queries)

    def efforts(self, after: Effort | None = None) -> tuple[Effort, ...]:
        """Return the smallest effort, or the next ones; none if all rows are compared anyway."""
        return ()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one file, whose vectors :meth:`load` maps into memory."""
        with self._writing:
            self.merge()
            rows = self._state.rows
            arrays = {"ids": rows.ids(), **self._arrays(), "vectors": rows.vectors.between(0, rows.count)}
            if self.keeps_removed:
                arrays["alive"] = rows.alive().astype(np.uint8)
            names = ("dim", *self.words, *self.numbers, "generation", "identity")
            header = {name: getattr(self, name) for name in names}
            if self.calibration is not None:
                header["calibration"] = self.calibration.to_text()
            # Sort by element size, largest first, so that each array is aligned and can be mapped.
            arrays = dict(sorted(arrays.items(), key=lambda entry: -entry[1].itemsize))
            return save_arrays(path, self.kind, header, arrays)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of a file besides the vectors."""
        return {}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Open a file of :meth:`save`; it is never written to.

        Raises:
            FileNotFoundError: the file does not exist.
            ValueError: damaged, or another kind of file.
        """
        file = load_arrays(path, cls.kind)
        options: dict[str, Any] = {name: file.number(name) for name in cls.numbers}
        options |= {name: file.word(name, choices) for name, choices in cls.words.items()}
        index = cls(file.number("dim"), **options)
        index.generation = file.number("generation")
        index.identity = file.header.get("identity", "")
        index.calibration = IndexCalibration.of_text(file.header.get("calibration"))
        ids = file.array("ids", np.int64, (None,))
        count = len(ids)
        alive = np.ones(count, np.bool_)
        if cls.keeps_removed:
            alive = file.array("alive", np.uint8, (count,)).astype(np.bool_)
        vectors = file.array("vectors", np.float16, (count, index.dim))
        index._restore(file, Rows(index.dim, vectors, ids, alive))
        return index

    def _restore(self, file: IndexFile, rows: Rows) -> None:
        """Take over the rows and the arrays of :meth:`_arrays`."""
        raise NotImplementedError
