"""The kinds of index that there are: what each finds, needs and costs, and how a store gets one."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from memory.errors import IndexUnavailableError
from memory.index.flat import FlatIndex
from memory.index.itq import ITQIndex
from memory.index.lsh import LSHIndex
from memory.index.neighbours import LongTermIndex
from sparse_core.common.table import Column, Table


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
        extra: of this project that brings the package.
        has: what the package must have, which only builds for GPUs do, or ``""``.
        gpu: whether it needs an NVIDIA GPU.
        least_dim: of the vectors.
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
    extra: str = ""
    has: str = ""
    gpu: bool = False
    least_dim: int = 1
    why_not: str = ""
    suffix: str = ""
    make: Callable[[int, int], LongTermIndex] | None = None
    load: Callable[[Path], LongTermIndex] | None = None

    @property
    def needs(self) -> str:
        """In words."""
        package = f"{self.package} for GPUs" if self.has else self.package
        return " and ".join(filter(None, (package, "a GPU" if self.gpu else ""))) or "nothing"

    @property
    def missing(self) -> str:
        """What of that is not here; empty where it runs."""
        gone = []
        if self.package and importlib.util.find_spec(self.package) is None:
            gone.append(self.package)
        elif self.has and not hasattr(importlib.import_module(self.package), self.has):
            gone.append(f"{self.package} for GPUs")
        if self.gpu and not _has_gpu():
            gone.append("a GPU")
        return " and ".join(gone)

    def require(self) -> None:
        """Raise ``IndexUnavailableError`` unless it runs here; says what is missing and what to do."""
        missing = self.missing
        if not missing:
            return
        steps = []
        if self.package and self.package in missing:
            other = "pip uninstall faiss-cpu, then " if self.has else ""
            steps.append(f"{other}pip install 'sparsight[{self.extra}]'")
        if "a GPU" in missing:
            steps.append("run where torch can use an NVIDIA GPU")
        raise IndexUnavailableError(
            f"index {self.name!r} needs {self.needs}; missing here: {missing}. To have it:"
            f" {'; '.join(steps)}."
            ' Or take one that needs nothing: StoreConfig(index="lsh"), --index lsh, or "index": "lsh" in the'
            " config.json of the store"
        )

    def check_dim(self, dim: int) -> None:
        """Raise ``ValueError`` where vectors of so many numbers are too short for it."""
        if dim < self.least_dim:
            raise ValueError(
                f"index {self.name!r} needs vectors of at least {self.least_dim} numbers, these have {dim}:"
                ' take another, such as StoreConfig(index="lsh")'
            )

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        names = [entry.name for entry in fields(self) if entry.name not in ("suffix", "make", "load", "has")]
        return {name: getattr(self, name) for name in (*names, "needs", "missing")}


def _has_gpu() -> bool:
    import torch  # Takes seconds to load, and only indexes on a GPU need it.

    return torch.cuda.is_available()


#: Vectors up to which faiss compares all of them on a GPU: some 0.3 ms a query.
_FLAT_ON_GPU = 100_000


def _faiss(lists: Any, refine: int, *, device: Any = "cpu", flat_up_to: int = 0) -> dict[str, Any]:
    """How an index of faiss with such lists is made and loaded; the package is imported then."""

    def make(dim: int, count: int) -> LongTermIndex:
        from memory.index.faiss_index import FaissIndex

        # Cells of some hundred vectors; a sixty-fourth of them holds the neighbours of nearly every query.
        cells = 0 if count <= flat_up_to else 1 << max(4, round(math.log2(math.sqrt(count) * 2)))
        probes = max(4, cells // 64)
        return FaissIndex(dim, lists=lists, cells=cells, probes=probes, refine=refine, device=device)

    def load(path: Path) -> LongTermIndex:
        from memory.index.faiss_index import FaissIndex

        index = FaissIndex.load(path, device=device)
        if index.lists != lists:
            raise ValueError(f"{path}: its lists hold {index.lists}, not {lists}")
        return index

    return {"package": "faiss", "suffix": "faissindex", "make": make, "load": load}


def faiss_on(device: str) -> dict[str, Any]:
    """How one of kind ``faiss-gpu`` is made and loaded on ``"cuda"``, or with the same steps on a CPU."""
    return _faiss("half", 1, device=device, flat_up_to=_FLAT_ON_GPU)


def cuda_on(device: str) -> dict[str, Any]:
    """How one of kind ``cuda`` is made and loaded on ``"cuda"``, or with the same steps on a CPU."""

    def make(dim: int, count: int) -> LongTermIndex:
        from memory.index.cuda import CudaIndex

        return CudaIndex(dim, device=device)

    def load(path: Path) -> LongTermIndex:
        from memory.index.cuda import CudaIndex

        return CudaIndex.load(path, device=device)

    return {"suffix": "cudaindex", "make": make, "load": load}


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
        least_dim=64, suffix="itqindex", load=ITQIndex.load,
        make=lambda dim, count: ITQIndex(dim, bits=min(128, dim // 64 * 64)),
    ),
    IndexKind(
        name="faiss", finds="by inverted lists of vectors around learned centres, then exactly",
        trains=True, bytes_a_vector=1561, extra="faiss", **_faiss("flat", 1),
    ),
    IndexKind(
        name="faiss-rabitq", finds="by inverted lists of a bit a number around learned centres, then exactly",
        trains=True, bytes_a_vector=577, extra="faiss", **_faiss("rabitq", 10),
    ),
    IndexKind(
        name="faiss-gpu", finds="by inverted lists of faiss on a GPU, or all up to 100,000, then exactly",
        trains=True, bytes_a_vector=1049, extra="faiss-gpu", has="StandardGpuResources", gpu=True,
        filters="more are asked for, those that do not count left out; too few left: exactly, on the host",
        **faiss_on("cuda"),
    ),
    IndexKind(
        name="cuda", finds="by cells around vectors drawn at random or a scan of packed codes, then exactly",
        bytes_a_vector=594, changes="additions are compared until 4096 are sorted in, removals leave a mark",
        filters="lists or marks of rows, exactly", gpu=True, **cuda_on("cuda"),
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
