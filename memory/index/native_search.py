"""Searches in C++, compiled when they are first needed: one pass where arrays take a dozen.

Hash tables: the same rows are compared as :mod:`memory.index.lsh` does with arrays. Scores are sums in
another order: they differ from those of arrays in their last bits, but not by what is searched together, nor
by threads. Rows: those of a single query, whose product with arrays would wake threads that wait by spinning.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.index.buckets import BUCKET_LIMIT, Buckets
from memory.index.effort import Effort
from memory.index.hashing import HashFunctions
from memory.index.neighbours import Floats, Ids, Neighbours, Positions, nothing
from sparse_core.errors import ImplementationError
from sparse_core.kernels import native

_SOURCE = Path(__file__).with_name("search.cpp")
#: Sums as they are written: nothing is rounded once where it says twice.
_FLAGS = ("-ffp-contract=off",)
_LOG = logging.getLogger(__name__)
#: Rows as two arrays: a fixed part, and one that grows.
Parts = tuple[NDArray[Any], NDArray[Any]]


class _Buckets(ctypes.Structure):
    _fields_ = (
        ("offsets", ctypes.c_void_p),
        ("postings", ctypes.c_void_p),
        ("start", ctypes.c_int64),
        ("address_bits", ctypes.c_int64),
        ("wide", ctypes.c_int64),
    )


class _Rows(ctypes.Structure):
    _fields_ = (("fixed", ctypes.c_void_p), ("grown", ctypes.c_void_p), ("count", ctypes.c_int64))


class _Index(ctypes.Structure):
    _fields_ = (
        ("directions", ctypes.c_void_p),
        ("pairs", ctypes.c_void_p),
        ("buckets", ctypes.POINTER(_Buckets)),
        ("sketches", _Rows),
        *((name, ctypes.c_int64) for name in (
            "dim", "projections", "functions", "width", "bits", "tables", "parts", "rows", "bucket_limit",
        )),
    )  # fmt: skip


class CompiledTables:
    """Searches the tables that there were when it was made, beside additions; make it with :meth:`of`.

    Args:
        function: of the library.
        index: what it takes.
        kept: what that points to.
    """

    def __init__(self, function: Any, index: _Index, kept: Sequence[object]) -> None:
        self._function = function
        self._index = ctypes.byref(index)
        self._kept = index, kept

    @classmethod
    def of(
        cls,
        functions: HashFunctions,
        pairs: Sequence[tuple[int, int]],
        buckets: Sequence[Buckets],
        sketches: Parts,
    ) -> CompiledTables | None:
        """Those over some rows; ``None`` where nothing is compiled.

        Args:
            functions: of the family ``"cross-polytope"``.
            pairs: functions of each table.
            buckets: of the tables.
            sketches: of the rows, at least those of the tables, in both parts.
        """
        function = _function("lsh_search")
        if function is None:
            return None
        directions = np.ascontiguousarray(functions.directions)
        numbers = np.array(pairs, np.int32)
        tables = (_Buckets * len(buckets))()
        for table, part in zip(tables, buckets, strict=True):
            wide = part.offsets.dtype == np.int64
            table.offsets, table.postings = part.offsets.ctypes.data, part.postings.ctypes.data
            table.start, table.address_bits, table.wide = part.start, part.address_bits, wide
        index = _Index(
            directions.ctypes.data, numbers.ctypes.data, tables, _rows(sketches), len(directions),
            directions.shape[1], functions.functions, functions.width, functions.bits, len(pairs),
            len(buckets), buckets[-1].stop, BUCKET_LIMIT,
        )  # fmt: skip
        return cls(function, index, (directions, numbers, tables, buckets, sketches))

    def search(
        self,
        queries: Floats,
        k: int,
        depth: int,
        effort: Effort,
        vectors: Parts,
        ids: Ids,
        mask: NDArray[np.bool_] | None,
    ) -> Neighbours:
        """The k best of what the buckets hold, and of the rows that no table has.

        Args:
            queries: (queries, dim) unit vectors.
            k: of each.
            depth: values of each function that probes are chosen among.
            effort: probes, and rows that are compared.
            vectors: of the rows, in both parts.
            ids: (rows,) by position, all that are looked at.
            mask: (rows,) which rows count, or ``None``.
        """
        found = nothing(len(queries), k)
        kept = _contiguous(ids, mask)
        self._function(
            self._index, ctypes.byref(_rows(vectors)), kept[0].ctypes.data, queries.ctypes.data, len(queries),
            k, depth, effort.probes, effort.rerank, len(ids), _address(kept[1]), found.scores.ctypes.data,
            found.ids.ctypes.data,
        )  # fmt: skip
        return found


def nearest_rows(
    query: Floats,
    k: int,
    vectors: Parts,
    ids: Ids,
    *,
    start: int = 0,
    mask: NDArray[np.bool_] | None = None,
    positions: Positions | None = None,
) -> Neighbours | None:
    """The k best of rows by their products with one query; ``None`` where nothing is compiled.

    Args:
        query: (1, dim) unit vector.
        k: most neighbours.
        vectors: of the rows, in both parts.
        ids: (rows,) by position, all that are looked at.
        start: the first of them that is looked at.
        mask: (rows,) which rows count, or ``None``.
        positions: (n,) int64, these rows instead.
    """
    function = _function("rows_search")
    if function is None:
        return None
    stored, kept = _rows(vectors), _contiguous(ids, mask)
    stop = len(ids) if positions is None else len(positions)
    listed = None if positions is None else np.ascontiguousarray(positions, np.int64)
    places, marks = _address(listed), _address(kept[1])
    found = nothing(1, k)
    function(
        ctypes.byref(stored), kept[0].ctypes.data, query.ctypes.data, query.shape[1], k,
        places, start, stop, marks, found.scores.ctypes.data, found.ids.ctypes.data,
    )  # fmt: skip
    return found


def _contiguous(ids: Ids, mask: NDArray[np.bool_] | None) -> tuple[Ids, NDArray[np.bool_] | None]:
    return np.ascontiguousarray(ids), None if mask is None else np.ascontiguousarray(mask)


def _address(array: NDArray[Any] | None) -> int | None:
    return None if array is None else array.ctypes.data


def _rows(parts: Parts) -> _Rows:
    fixed, grown = parts
    return _Rows(fixed.ctypes.data, grown.ctypes.data, len(fixed))


_NUMBER, _POINTER = ctypes.c_int64, ctypes.c_void_p
_ARGUMENTS = {
    "lsh_search": [*[_POINTER] * 4, *[_NUMBER] * 6, *[_POINTER] * 3],
    "rows_search": [*[_POINTER] * 3, *[_NUMBER] * 2, _POINTER, *[_NUMBER] * 2, *[_POINTER] * 3],
}


@cache
def _function(name: str) -> Any:
    """One of the library's; ``None`` where it cannot be compiled."""
    try:
        function = getattr(native.load(_SOURCE, _FLAGS), name)
    except ImplementationError as error:
        _LOG.info("vectors are searched with arrays: %s", error)
        return None
    function.argtypes = _ARGUMENTS[name]
    function.restype = None
    return function
