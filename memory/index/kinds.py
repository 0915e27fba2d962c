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
from sparse_core.table import Column, Table


@dataclass(frozen=True, kw_only=True)
class IndexKind:
    """One kind of index.

    Attributes:
        name: in ``StoreConfig(index=...)``.
        finds: neighbours, how.
        exact: whether it compares all vectors whatever the aim.
        trains: whether it has to see vectors before it can sort them.
        changes: what additions and removals take.
        filters: what a search does that may give some vectors only.
        repeatable: what the answers depend on.
        bytes_a_vector: of the whole index, at 256 numbers a vector and without room to grow; 0: not measured.
        package: that has to be installed, by the name it is imported by, or ``""``.
        gpu: whether it needs an NVIDIA GPU.
        why_not: it cannot be the index of a store; empty where it can.
        suffix: of its files in a store.
        make: an empty one, for vectors of so many numbers and so many of them.
        load: of a file; raises ``ValueError`` for one that is not of this kind.
    """

    name: str
    finds: str
    exact: bool = False
    trains: bool = False
    changes: str = "additions go into their lists, removals leave a mark"
    filters: str = "lists or marks of rows, as many buckets or cells more as few of them count"
    repeatable: str = "the seed, and what was added in which portions"
    bytes_a_vector: int = 0
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


_TABLE = (
    IndexKind(
        name="flat", finds="all, compared one after the other", exact=True, bytes_a_vector=529,
        changes="additions go to the end, removals leave a mark", filters="lists or marks of rows, exactly",
        repeatable="the vectors", why_not="every store has it, for its newest vectors and up to index_from",
        suffix="flatindex", make=lambda dim, count: FlatIndex(dim), load=FlatIndex.load,
    ),
    IndexKind(
        name="lsh", finds="by hash tables that nothing is learned for, then exactly", bytes_a_vector=705,
        changes="additions are compared until 2048 are sorted in, removals leave a mark",
        suffix="lshindex", make=lambda dim, count: LSHIndex(dim, expected=count), load=LSHIndex.load,
    ),
    IndexKind(
        name="itq", finds="by the Hamming distance of learned codes, all of which are read, then exactly",
        trains=True, bytes_a_vector=545, filters="lists or marks of rows: only their codes are read",
        why_not="it takes no vectors before it was trained, none below 64 numbers, and measures no efforts",
    ),
    IndexKind(
        name="faiss", finds="by inverted lists of vectors around learned centres, then exactly",
        trains=True, bytes_a_vector=1561, **_faiss("flat", 1),
    ),
    IndexKind(
        name="faiss-rabitq", finds="by inverted lists of a bit a number around learned centres, then exactly",
        trains=True, bytes_a_vector=577, **_faiss("rabitq", 10),
    ),
    IndexKind(
        name="faiss-gpu", finds="by the inverted lists of faiss on a GPU", trains=True,
        package="faiss", gpu=True, why_not="there is no such index here yet",
    ),
    IndexKind(
        name="cuda", finds="by cells around vectors drawn at random and packed codes, then exactly",
        bytes_a_vector=594, changes="additions are compared until 4096 are sorted in, removals leave a mark",
        filters="lists or marks of rows, exactly", repeatable="the seed and what was added", gpu=True,
        why_not="what it costs was not measured for stores yet: use memory.index.cuda.CudaIndex on its own",
    ),
)  # fmt: skip
#: By name.
KINDS: dict[str, IndexKind] = {kind.name: kind for kind in _TABLE}
#: Those that a store can have.
STORE_KINDS: tuple[str, ...] = tuple(kind.name for kind in _TABLE if not kind.why_not)


def table_of_kinds() -> Table:
    """All kinds, to be printed."""
    columns: dict[str, Column] = {
        "index": "name",
        "finds": "finds",
        "needs": lambda kind: kind.needs + (f" ({kind.missing} is missing)" if kind.missing else ""),
        "trains": lambda kind: "yes" if kind.trains else "no",
        "bytes a vector": lambda kind: kind.bytes_a_vector or "",
        "in a store": lambda kind: kind.why_not or "yes",
    }
    return Table.of(KINDS.values(), columns, title="kinds of index, at 256 numbers a vector")


def check_store_kind(name: str) -> IndexKind:
    """The kind of a store's index, or raise ``ValueError`` with the reason why it cannot be that."""
    kind = KINDS.get(name)
    if kind is None:
        raise ValueError(f"index must be one of {', '.join(STORE_KINDS)}; got {name!r}")
    if kind.why_not:
        raise ValueError(f"index {name!r} cannot be that of a store: {kind.why_not}")
    return kind
