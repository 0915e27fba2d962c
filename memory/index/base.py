"""What the indexes over rows in the host's memory do alike; how each finds near rows is its own."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self

from memory.index.effort import EXACT, USUAL, Calibration, Effort, check_aim, chosen
from memory.index.files import IndexFile, load_arrays, save_arrays
from memory.index.neighbours import Among, Floats, Ids, Neighbours, check_dim, check_k, check_units
from memory.index.planner import exact_price
from memory.index.rows import Rows

#: Rows behind the sorted ones that every query is compared with; more are sorted in.
TAIL_LIMIT = 2048
# Choices of an effort that are kept.
_KEPT = 64


class State(Protocol):
    """What one search looks at: replaced as a whole, so that searches need no lock."""

    @property
    def rows(self) -> Rows:
        """The vectors."""
        ...


class Held(NamedTuple):
    """Rows, and nothing beside them."""

    rows: Rows


class Search(NamedTuple):
    """A search that does not compare all.

    Attributes:
        queries: (queries, dim) unit vectors.
        k: neighbours of each.
        total: rows that there were when it began.
        mask: (total,) which of them count; ``None`` for all.
        effort: that is to be made.
    """

    queries: Floats
    k: int
    total: int
    mask: NDArray[np.bool_] | None
    effort: Effort


StateT = TypeVar("StateT", bound=State)


class RowIndex(Generic[StateT]):
    """Vectors in half precision on the host, for indexes that differ in how they find near ones.

    One of its own has :meth:`_nearest`, the efforts of it, and what is made of new rows and written to files.

    Args:
        dim: of a vector.
        state: of an index without vectors.

    Attributes:
        dim: of a vector.
        generation: how far the index follows the store; kept in its file, used by nobody here.
        identity: of the store's history up to there; likewise.
        calibration: what efforts find, see :func:`memory.index.calibration.calibrate`; ``None`` before.
    """

    #: Of its files.
    kind: ClassVar[str]
    #: Arguments that its files keep, and for those that are words the ones that there are.
    numbers: ClassVar[tuple[str, ...]] = ()
    words: ClassVar[dict[str, tuple[str, ...]]] = {}
    #: Up to this share of the rows, listed ones are gathered and compared whatever the effort.
    gathered_share: ClassVar[float] = 0.0
    #: What a search reads, in words.
    reads: ClassVar[str] = "rows"
    #: Whether its files have removed rows, with marks.
    keeps_removed: ClassVar[bool] = True

    def __init__(self, dim: int, state: StateT) -> None:
        self.dim = check_dim(dim)
        self.generation = 0
        self.identity = ""
        self.calibration: Calibration | None = None
        self._state = state
        self._writing = threading.RLock()
        #: Efforts by aim and queries, of so many rows and a calibration.
        self._chosen: tuple[int, Calibration | None, dict[tuple[float, int], Effort]] = (-1, None, {})

    def __len__(self) -> int:
        return len(self._state.rows)

    @property
    def positions(self) -> int:
        """Rows, removed ones included."""
        return self._state.rows.count

    def stored(self, start: int, stop: int, *, most: int | None = None) -> tuple[Ids, Floats]:
        """Ids and (rows, dim) vectors of the living rows from start to stop, the first ``most`` of them."""
        return self._state.rows.stored(start, stop, most)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self._state.rows.nbytes

    @property
    def tail(self) -> int:
        """Rows that :meth:`merge` has to sort; they are found all the same."""
        return 0

    def merge(self, *, whole: bool = False) -> None:
        """Sort in what was added; here there is nothing to do."""

    def add(self, vectors: ArrayLike, ids: ArrayLike, *, merge: bool = True) -> None:
        """Add (rows, dim) unit vectors under (rows,) new ids.

        Args:
            vectors: (rows, dim).
            ids: (rows,) int64.
            merge: sort a long tail in at once; False leaves that to a thread that calls :meth:`merge`.

        Raises:
            ValueError: not unit vectors, or an id that is there; nothing is added.
        """
        with self._writing:
            self._state.rows.add(vectors, ids)
            self._take_in()
        if merge and self.tail > TAIL_LIMIT:
            self.merge()

    def _take_in(self) -> None:
        """Make of new rows what they are found by."""

    def remove(self, ids: ArrayLike) -> int:
        """Leave these out from now on; the number that was there. Space comes back with a new index."""
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
        """The k nearest of each query, as far as the effort finds them.

        Args:
            queries: (queries, dim) unit vectors.
            k: neighbours a query, of which an answer has at most as many as there are rows.
            among: what to choose from; ``None`` for all. The fewer are marked, the more is read, within
                bounds. With an aim of 1 listed rows are gathered and compared; where they are marked, every
                row is passed.
            aim: share of the ten nearest that is to be found, where the index is calibrated; ``None``: 0.95.
                Where comparing all rows takes less, that is done; many queries at once share its cost.
            effort: instead of ``aim``.

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
            mask = rows.living(count)
        elif among.kept is None:
            positions = rows.among(count, among.ids)
            if aim == 1.0 or len(positions) <= self.gathered_share * count:
                return rows.within(asked, positions, k)
            mask = rows.listed(count, positions)
        else:
            mask = rows.marked(count, np.asarray(among.ids), among.kept)
            share = np.count_nonzero(mask) / max(1, count)
        if effort is None and aim == 1.0:
            effort = EXACT
        elif effort is None:
            effort = self._effort_for(aim, len(asked), k).for_share(share)
        if effort == EXACT:
            return rows.exact(asked, k, 0, count, mask)
        return self._nearest(state, Search(asked, k, count, mask, effort))

    def _nearest(self, state: StateT, asked: Search) -> Neighbours:
        """The k best that the effort finds."""
        return state.rows.exact(asked.queries, asked.k, 0, asked.total, asked.mask)

    def effort(self, aim: float, *, queries: int = 1) -> Effort:
        """What is done for an aim where so many queries are asked together; see :meth:`search`."""
        rows, calibration, known = self._chosen
        if rows != len(self) or calibration is not self.calibration or len(known) >= _KEPT:
            rows, calibration, known = len(self), self.calibration, {}
            self._chosen = rows, calibration, known
        found = known.get((check_aim(aim), queries))
        if found is None:
            found = chosen(
                calibration,
                aim,
                usual=self._usual,
                price=lambda effort: self.price(effort, queries=queries),
                exact_price=exact_price(rows, queries),
            )
            known[aim, queries] = found
        return found

    def told(self, aim: float, *, share: float = 1.0) -> str:
        """What a single query does for an aim where such a share of the rows counts, in words."""
        effort = self.effort(aim).for_share(share)
        return "all rows compared" if effort == EXACT else self._told(effort)

    def _told(self, effort: Effort) -> str:
        return f"{effort.probes} {self.reads}, {effort.rerank} rows compared"

    def _usual(self, aim: float) -> Effort:
        """What is done for an aim before the index is calibrated."""
        return EXACT

    def _effort_for(self, aim: float, queries: int, k: int) -> Effort:
        """What is done for so many neighbours."""
        return self.effort(aim, queries=queries)

    def price(self, effort: Effort, *, queries: int = 1) -> float:
        """Nanoseconds a query of one core, where so many are asked together; of all rows, if not known."""
        return exact_price(len(self), queries)

    def efforts(self, after: Effort | None = None) -> tuple[Effort, ...]:
        """The least effort, or those to try after this one; none where all rows are compared anyway."""
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
            # Larger numbers first: each array is aligned to its own, and mapped.
            arrays = dict(sorted(arrays.items(), key=lambda entry: -entry[1].itemsize))
            return save_arrays(path, self.kind, header, arrays)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """What a file holds beside the vectors."""
        return {}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Open a file of :meth:`save`; it is never written to.

        Raises:
            FileNotFoundError: no such file.
            ValueError: damaged or another kind of file.
        """
        file = load_arrays(path, cls.kind)
        options: dict[str, Any] = {name: file.number(name) for name in cls.numbers}
        options |= {name: file.word(name, choices) for name, choices in cls.words.items()}
        index = cls(file.number("dim"), **options)
        index.generation = file.number("generation")
        index.identity = file.header.get("identity", "")
        index.calibration = Calibration.of_text(file.header.get("calibration"))
        ids = file.array("ids", np.int64, (None,))
        count = len(ids)
        alive = np.ones(count, np.bool_)
        if cls.keeps_removed:
            alive = file.array("alive", np.uint8, (count,)).astype(np.bool_)
        vectors = file.array("vectors", np.float16, (count, index.dim))
        index._restore(file, Rows(index.dim, vectors, ids, alive))
        return index

    def _restore(self, file: IndexFile, rows: Rows) -> None:
        """Take the rows, and what :meth:`_arrays` gave."""
        raise NotImplementedError
