"""The kinds of index that there are: what each finds, needs and costs, and how a store gets one."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from memory.index.flat import FlatIndex
from memory.index.lsh import LSHIndex
from memory.index.neighbours import LongTermIndex


@dataclass(frozen=True)
class IndexKind:
    """One kind of index.

    Attributes:
        name: in ``StoreConfig(index=...)``.
        finds: neighbours, how.
        package: that has to be installed, by the name it is imported by, or ``""``.
        gpu: whether it needs an NVIDIA GPU.
        exact: whether it compares all vectors whatever the aim.
        trains: whether it has to see vectors before it can sort them.
        changes: what additions and removals take.
        filters: what a search does that may give some vectors only.
        bytes_a_vector: of the whole index, at 256 numbers a vector and without room to grow; 0: not measured.
        repeatable: what the answers depend on.
        why_not: it cannot be the index of a store; empty where it can.
        suffix: of its files in a store.
        make: an empty one, for vectors of so many numbers and so many of them.
        load: of a file; raises ``ValueError`` for one that is not of this kind.
    """

    name: str
    finds: str
    exact: bool
    trains: bool
    changes: str
    filters: str
    bytes_a_vector: int
    repeatable: str
    package: str = ""
    gpu: bool = False
    why_not: str = ""
    suffix: str = ""
    make: Callable[[int, int], LongTermIndex] | None = None
    load: Callable[[Path], LongTermIndex] | None = None

    @property
    def needs(self) -> str:
        """In words."""
        return " and ".join(filter(None, (self.package, "a GPU" if self.gpu else ""))) or "nothing"

    @property
    def missing(self) -> str:
        """What of that is not here; empty where it runs."""
        if self.package and importlib.util.find_spec(self.package) is None:
            return self.package
        return "a GPU" if self.gpu and not torch.cuda.is_available() else ""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        names = [entry.name for entry in fields(self) if entry.name not in ("suffix", "make", "load")]
        return {name: getattr(self, name) for name in (*names, "needs", "missing")}


def _hashed(dim: int, count: int) -> LongTermIndex:
    return LSHIndex(dim, expected=count)


def _faiss(lists: Any, refine: int) -> dict[str, Any]:
    """How an index of faiss with such lists is made and loaded; the package is imported then."""

    def make(dim: int, count: int) -> LongTermIndex:
        from memory.index.faiss_index import FaissIndex

        # Cells of some hundred vectors; a sixty-fourth of them holds the neighbours of nearly every query.
        cells = 1 << max(4, round(math.log2(math.sqrt(count) * 2)))
        return FaissIndex(dim, lists=lists, cells=cells, probes=max(4, cells // 64), refine=refine)

    def load(path: Path) -> LongTermIndex:
        from memory.index.faiss_index import FaissIndex

        index = FaissIndex.load(path)
        if index.lists != lists:
            raise ValueError(f"{path}: its lists hold {index.lists}, not {lists}")
        return index

    return {"package": "faiss", "suffix": "faissindex", "make": make, "load": load}


_MARKS = "lists or marks of rows, as many buckets or cells more as few of them count"
_SEED = "the seed, and what was added in which portions"
_AS_THEY_COME = "additions go into their lists, removals leave a mark"
_TABLE = (
    IndexKind(
        "flat",
        "all, compared one after the other",
        exact=True,
        trains=False,
        changes="additions go to the end, removals leave a mark",
        filters="lists or marks of rows, exactly",
        bytes_a_vector=529,
        repeatable="the vectors",
        why_not="every store has it, for its newest vectors and up to index_from of them",
        suffix="flatindex",
        make=lambda dim, count: FlatIndex(dim),
        load=FlatIndex.load,
    ),
    IndexKind(
        "lsh",
        "by hash tables that nothing is learned for, then exactly",
        exact=False,
        trains=False,
        changes="additions are compared until 2048 are sorted in, removals leave a mark",
        filters=_MARKS,
        bytes_a_vector=705,
        repeatable=_SEED,
        suffix="lshindex",
        make=_hashed,
        load=LSHIndex.load,
    ),
    IndexKind(
        "itq",
        "by the Hamming distance of learned codes, all of which are read, then exactly",
        exact=False,
        trains=True,
        changes=_AS_THEY_COME,
        filters="lists or marks of rows: only their codes are read",
        bytes_a_vector=545,
        repeatable=_SEED,
        why_not="it takes no vectors before it was trained, none below 64 numbers, and measures no efforts",
    ),
    IndexKind(
        "faiss",
        "by inverted lists of vectors around learned centres, then exactly",
        exact=False,
        trains=True,
        changes=_AS_THEY_COME,
        filters=_MARKS,
        bytes_a_vector=1561,
        repeatable=_SEED,
        **_faiss("flat", 1),
    ),
    IndexKind(
        "faiss-rabitq",
        "by inverted lists of a bit a number around learned centres, then exactly",
        exact=False,
        trains=True,
        changes=_AS_THEY_COME,
        filters=_MARKS,
        bytes_a_vector=577,
        repeatable=_SEED,
        **_faiss("rabitq", 10),
    ),
    IndexKind(
        "faiss-gpu",
        "by the inverted lists of faiss on a GPU",
        exact=False,
        trains=True,
        changes=_AS_THEY_COME,
        filters="lists of rows",
        bytes_a_vector=0,
        repeatable=_SEED,
        package="faiss",
        gpu=True,
        why_not="there is no such index here yet",
    ),
    IndexKind(
        "cuda",
        "by cells around vectors drawn at random and packed codes, then exactly",
        exact=False,
        trains=False,
        changes="additions are compared until 4096 are sorted in, removals leave a mark",
        filters="lists or marks of rows, exactly",
        bytes_a_vector=594,
        repeatable="the seed and what was added",
        gpu=True,
        why_not="what it costs was not measured for stores yet: use memory.index.cuda.CudaIndex on its own",
    ),
)
#: By name.
KINDS: dict[str, IndexKind] = {kind.name: kind for kind in _TABLE}
#: Those that a store can have.
STORE_KINDS: tuple[str, ...] = tuple(kind.name for kind in _TABLE if not kind.why_not)


def check_store_kind(name: str) -> IndexKind:
    """The kind of a store's index, or raise ``ValueError`` with the reason why it cannot be that."""
    kind = KINDS.get(name)
    if kind is None:
        raise ValueError(f"index must be one of {', '.join(STORE_KINDS)}; got {name!r}")
    if kind.why_not:
        raise ValueError(f"index {name!r} cannot be that of a store: {kind.why_not}")
    return kind
