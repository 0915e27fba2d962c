"""Registry of index kinds: what each finds, needs and costs, and how to create one."""

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
        name: name in ``StoreConfig(index=...)``.
        finds: how it finds neighbours.
        exact: True if it compares all vectors at every aim.
        trains: True if it must see vectors before it can sort them.
        changes: cost of additions and removals.
        filters: how a search handles filters.
        repeatable: what the answers depend on.
        bytes_a_vector: bytes per vector of the whole index at 256 dimensions, without spare room; 0: not
            measured.
        package: import name of a required package, or ``""``.
        extra: extra of this project that installs the package.
        has: attribute that only GPU builds of the package have, or ``""``.
        gpu: True if it needs an NVIDIA GPU.
        least_dim: minimum length of the vectors.
        why_not: reason why a store cannot use it; empty if it can.
        suffix: suffix of its files in a store.
        make: creates an empty one for a vector length and an expected number of vectors.
        load: loads a file; raises ``ValueError`` for another kind of file.
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
        """Requirements as text."""
        package = f"{self.package} for GPUs" if self.has else self.package
        return " and ".join(filter(None, (package, "a GPU" if self.gpu else ""))) or "nothing"

    @property
    def missing(self) -> str:
        """Missing requirements; empty if the index runs here."""
        gone = []
        if self.package and importlib.util.find_spec(self.package) is None:
            gone.append(self.package)
        elif self.has and not hasattr(importlib.import_module(self.package), self.has):
            gone.append(f"{self.package} for GPUs")
        if self.gpu and not _has_gpu():
            gone.append("a GPU")
        return " and ".join(gone)

    def require(self) -> None:
        """Raise ``IndexUnavailableError``, with the steps to take, unless the index runs here."""
        missing = self.missing
        if not missing:
            return
        steps = []
        if self.package and self.package in missing:
            other = "pip uninstall faiss-cpu, then " if self.has else ""
            steps.append(f"run {other}pip install 'sparsight[{self.extra}]'")
        if "a GPU" in missing:
            steps.append("run on a machine with an NVIDIA GPU that torch supports")
        raise IndexUnavailableError(
            f"index {self.name!r} needs {self.needs}; missing here: {missing}."
            f" To use it, {' and '.join(steps)}."
            ' Otherwise choose an index without requirements: StoreConfig(index="lsh"), --index lsh, or'
            ' "index": "lsh" in the store\'s config.json'
        )

    def check_dim(self, dim: int) -> None:
        """Raise ``ValueError`` if vectors of this length are too short for the index."""
        if dim < self.least_dim:
            raise ValueError(
                f"index {self.name!r} needs vectors of at least {self.least_dim} numbers, these have {dim}."
                ' Choose another, such as StoreConfig(index="lsh")'
            )

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        names = [entry.name for entry in fields(self) if entry.name not in ("suffix", "make", "load", "has")]
        return {name: getattr(self, name) for name in (*names, "needs", "missing")}


def _has_gpu() -> bool:
    import torch  # Loading torch takes seconds, and only indexes on a GPU need it.

    return torch.cuda.is_available()


#: Number of vectors up to which faiss compares all of them on a GPU, about 0.3 ms per query.
_FLAT_ON_GPU = 100_000


def _faiss(lists: Any, refine: int, *, device: Any = "cpu", flat_up_to: int = 0) -> dict[str, Any]:
    """Return the fields of a faiss kind; the package is imported on first use."""

    def make(dim: int, count: int) -> LongTermIndex:
        from memory.index.faiss_index import FaissIndex

        # Cells of about a hundred vectors; 1/64 of the cells holds the neighbours of nearly every query.
        cells = 0 if count <= flat_up_to else 1 << max(4, round(math.log2(math.sqrt(count) * 2)))
        probes = max(4, cells // 64)
        return FaissIndex(dim, lists=lists, cells=cells, probes=probes, refine=refine, device=device)

    def load(path: Path) -> LongTermIndex:
        from memory.index.faiss_index import FaissIndex

        index = FaissIndex.load(path, device=device)
        if index.lists != lists:
            raise ValueError(f"{path}: its lists hold {index.lists}, but the store needs {lists}")
        return index

    return {"package": "faiss", "suffix": "faissindex", "make": make, "load": load}


def faiss_on(device: str) -> dict[str, Any]:
    """Return the fields of kind ``faiss-gpu``; ``device="cpu"`` runs the same steps on a CPU."""
    return _faiss("half", 1, device=device, flat_up_to=_FLAT_ON_GPU)


def cuda_on(device: str) -> dict[str, Any]:
    """Return the fields of kind ``cuda``; ``device="cpu"`` runs the same steps on a CPU."""

    def make(dim: int, count: int) -> LongTermIndex:
        from memory.index.cuda import CudaIndex

        return CudaIndex(dim, device=device)

    def load(path: Path) -> LongTermIndex:
        from memory.index.cuda import CudaIndex

        return CudaIndex.load(path, device=device)

    return {"suffix": "cudaindex", "make": make, "load": load}


_TABLE = (
    IndexKind(
        name="flat", finds="exact search: compares all vectors", exact=True, bytes_a_vector=529,
        changes="additions go to the end, removals leave a mark", filters="lists or marks of rows, exactly",
        repeatable="the vectors", why_not="always, for the newest vectors and up to index_from",
        suffix="flatindex", make=lambda dim, count: FlatIndex(dim), load=FlatIndex.load,
    ),
    IndexKind(
        name="lsh", finds="random hash tables, then exact comparison", bytes_a_vector=705,
        changes="additions are compared until 2048 are sorted in, removals leave a mark",
        suffix="lshindex", make=lambda dim, count: LSHIndex(dim, expected=count), load=LSHIndex.load,
    ),
    IndexKind(
        name="itq", finds="Hamming distance to all learned codes, then exact comparison",
        trains=True, bytes_a_vector=545, filters="lists or marks of rows: only their codes are read",
        least_dim=64, suffix="itqindex", load=ITQIndex.load,
        make=lambda dim, count: ITQIndex(dim, bits=min(128, dim // 64 * 64)),
    ),
    IndexKind(
        name="faiss", finds="inverted lists of float32 vectors, then exact comparison",
        trains=True, bytes_a_vector=1561, extra="faiss", **_faiss("flat", 1),
    ),
    IndexKind(
        name="faiss-rabitq", finds="inverted lists of one-bit codes, then exact comparison",
        trains=True, bytes_a_vector=577, extra="faiss", **_faiss("rabitq", 10),
    ),
    IndexKind(
        name="faiss-gpu", finds="inverted lists on a GPU; up to 100,000 vectors exact search",
        trains=True, bytes_a_vector=1049, extra="faiss-gpu", has="StandardGpuResources", gpu=True,
        filters="more are asked for, those that do not count left out; too few left: exactly, on the host",
        **faiss_on("cuda"),
    ),
    IndexKind(
        name="cuda", finds="inverted lists or a scan of packed codes, then exact comparison",
        bytes_a_vector=594, changes="additions are compared until 4096 are sorted in, removals leave a mark",
        filters="lists or marks of rows, exactly", gpu=True, **cuda_on("cuda"),
    ),
)  # fmt: skip
#: All kinds by name.
KINDS: dict[str, IndexKind] = {kind.name: kind for kind in _TABLE}
#: Names of the kinds that a store can use.
STORE_KINDS: tuple[str, ...] = tuple(kind.name for kind in _TABLE if not kind.why_not)


def table_of_kinds() -> Table:
    """Return the table of all kinds for printing."""
    columns: dict[str, Column] = {
        "index": "name",
        "search": "finds",
        "needs": lambda kind: kind.needs + (f" ({kind.missing} is missing)" if kind.missing else ""),
        "trains": lambda kind: "yes" if kind.trains else "no",
        "bytes per vector": lambda kind: kind.bytes_a_vector or "",
        "--index": lambda kind: kind.why_not or "yes",
    }
    return Table.of(KINDS.values(), columns, title="vector indexes, with vectors of 256 numbers")


def check_store_kind(name: str) -> IndexKind:
    """Return the kind of a store's index, or raise ``ValueError`` with the reason why it is not possible."""
    kind = KINDS.get(name)
    if kind is None:
        raise ValueError(f"index must be one of {', '.join(STORE_KINDS)}; got {name!r}")
    if kind.why_not:
        raise ValueError(f"index {name!r} does not work as the index of a store: {kind.why_not}")
    return kind
