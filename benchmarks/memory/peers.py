"""Other vector stores and indexes behind the same few calls; those that are not installed are left out."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]


class Peer(Protocol):
    """Queries for a peer; ``effort`` is its own knob for recall against time."""

    efforts: tuple[int, ...]

    def build(self, vectors: Vectors, numbers: Ids) -> None:
        """Store vectors under their places, with a number each that filters look at."""

    def search(self, queries: Vectors, k: int, effort: int) -> Ids:
        """(queries, k) places."""


class Faiss:
    """IVF with flat lists, one thread."""

    efforts = (2, 4, 8, 16, 32)

    def build(self, vectors: Vectors, numbers: Ids) -> None:
        """See :class:`Peer`."""
        import faiss

        faiss.omp_set_num_threads(1)
        index: Any = faiss.index_factory(vectors.shape[1], "IVF1024,Flat", faiss.METRIC_INNER_PRODUCT)
        self._index = index
        self._index.cp.min_points_per_centroid = 1
        self._index.train(vectors)
        self._index.add(vectors)

    def search(self, queries: Vectors, k: int, effort: int) -> Ids:
        """See :class:`Peer`; ``effort`` is the number of lists."""
        self._index.nprobe = effort
        found: Ids = self._index.search(queries, k)[1]
        return found


class Hnswlib:
    """HNSW of hnswlib, one thread."""

    efforts = (32, 64, 128, 256)

    def build(self, vectors: Vectors, numbers: Ids) -> None:
        """See :class:`Peer`; built with all threads."""
        import hnswlib

        self._index = hnswlib.Index(space="ip", dim=vectors.shape[1])
        self._index.init_index(max_elements=len(vectors), ef_construction=100, M=16, random_seed=0)
        self._index.add_items(vectors, np.arange(len(vectors)))
        self._index.set_num_threads(1)

    def search(self, queries: Vectors, k: int, effort: int) -> Ids:
        """See :class:`Peer`; ``effort`` is ef."""
        self._index.set_ef(effort)
        return np.asarray(self._index.knn_query(queries, k)[0], np.int64)


class Usearch:
    """HNSW of usearch in half precision, one thread."""

    efforts = (32, 64, 128, 256)

    def build(self, vectors: Vectors, numbers: Ids) -> None:
        """See :class:`Peer`."""
        from usearch.index import Index

        self._index: Any = Index(ndim=vectors.shape[1], metric="ip", dtype="f16", connectivity=16)
        self._index.add(np.arange(len(vectors)), vectors)

    def search(self, queries: Vectors, k: int, effort: int) -> Ids:
        """See :class:`Peer`; ``effort`` is the expansion."""
        self._index.expansion_search = effort
        return np.asarray(self._index.search(queries, k, threads=1).keys, np.int64).reshape(len(queries), -1)


class Lance:
    """LanceDB: a table on disk, filters before or after the vector search."""

    efforts = (4, 16, 64)
    filtered_efforts = (64, 256)

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def build(self, vectors: Vectors, numbers: Ids) -> None:
        """See :class:`Peer`; IVF with flat lists."""
        self.insert(vectors, numbers)
        self._table.create_index(metric="dot", index_type="IVF_FLAT", num_partitions=256)
        self._table.create_scalar_index("number")

    def insert(self, vectors: Vectors, numbers: Ids) -> None:
        """Rows, without an index."""
        import lancedb
        import pyarrow as pa

        self._database = lancedb.connect(str(self._folder))
        self._table = self._database.create_table(
            "memory", self._rows(pa, vectors, numbers, 0), mode="overwrite"
        )

    def append(self, vectors: Vectors, numbers: Ids, first: int) -> None:
        """More rows, in one commit."""
        import pyarrow as pa

        self._table.add(self._rows(pa, vectors, numbers, first))

    def search(self, queries: Vectors, k: int, effort: int) -> Ids:
        """See :class:`Peer`; ``effort`` is the number of partitions."""
        return self.filtered(queries, k, effort, None)

    def filtered(
        self, queries: Vectors, k: int, effort: int, below: int | None, *, before: bool = True
    ) -> Ids:
        """Only rows with a number below a bound."""
        found = np.full((len(queries), k), -1, np.int64)
        for row, query in enumerate(queries):
            asked: Any = self._table.search(query)
            asked = asked.distance_type("dot").limit(k).nprobes(effort).select(["id", "_distance"])
            if below is not None:
                asked = asked.where(f"number < {below}", prefilter=before)
            ids = asked.to_arrow()["id"].to_numpy()
            found[row, : len(ids)] = ids
        return found

    @staticmethod
    def _rows(pa: Any, vectors: Vectors, numbers: Ids, first: int) -> Any:
        flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
        ids = np.arange(first, first + len(vectors))
        return pa.table({"id": ids, "number": numbers, "vector": flat})


class QdrantEdge:
    """Qdrant in the process: HNSW, with filters inside the search."""

    efforts = (32, 64, 128, 256)
    filtered_efforts = (256, 1024)

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def build(self, vectors: Vectors, numbers: Ids) -> None:
        """See :class:`Peer`; numbers are indexed too."""
        self.insert(vectors, numbers)
        edge = self._edge
        self._shard.update(edge.UpdateOperation.create_field_index("number", edge.PayloadSchemaType.Integer))
        self._shard.optimize()

    def insert(self, vectors: Vectors, numbers: Ids) -> None:
        """Rows, without an index."""
        import qdrant_edge as edge

        self._edge = edge
        self._folder.mkdir(parents=True)
        parameters = edge.EdgeVectorParams(size=vectors.shape[1], distance=edge.Distance.Dot)
        self._shard = edge.EdgeShard.create(str(self._folder), edge.EdgeConfig(vectors=parameters))
        self.append(vectors, numbers, 0)

    def append(self, vectors: Vectors, numbers: Ids, first: int) -> None:
        """More rows, flushed to the disk."""
        edge = self._edge
        for start in range(0, len(vectors), 2000):
            rows = range(start, min(start + 2000, len(vectors)))
            points = [
                edge.Point(
                    id=first + row, vector=vectors[row].tolist(), payload={"number": int(numbers[row])}
                )
                for row in rows
            ]
            self._shard.update(edge.UpdateOperation.upsert_points(points))
        self._shard.flush()

    def search(self, queries: Vectors, k: int, effort: int) -> Ids:
        """See :class:`Peer`; ``effort`` is ef."""
        return self.filtered(queries, k, effort, None)

    def filtered(self, queries: Vectors, k: int, effort: int, below: int | None) -> Ids:
        """Only rows with a number below a bound."""
        edge = self._edge
        condition = None
        if below is not None:
            condition = edge.Filter(must=[edge.FieldCondition(key="number", range=edge.RangeFloat(lt=below))])
        parameters = edge.SearchParams(hnsw_ef=effort)
        found = np.full((len(queries), k), -1, np.int64)
        for row, query in enumerate(queries):
            asked = edge.Query.Nearest(query.tolist())
            hits = self._shard.search(
                edge.SearchRequest(query=asked, limit=k, filter=condition, params=parameters)
            )
            ids = [int(hit.id) for hit in hits]
            found[row, : len(ids)] = ids
        return found


def peers(folder: Path) -> dict[str, Callable[[], Any]]:
    """Those that are installed, by name."""
    made: dict[str, tuple[str, Callable[[], Any]]] = {
        "faiss IVF": ("faiss", Faiss),
        "hnswlib": ("hnswlib", Hnswlib),
        "usearch": ("usearch", Usearch),
        "LanceDB": ("lancedb", lambda: Lance(folder / "lance")),
        "Qdrant Edge": ("qdrant_edge", lambda: QdrantEdge(folder / "qdrant")),
    }
    return {name: make for name, (module, make) in made.items() if importlib.util.find_spec(module)}
