"""Searches in C++, compiled on first use: one pass instead of a dozen array operations.

Hashes have the same bits as with arrays, and hash tables compare the same rows. Sums of scores run in another
order, so their last bits differ; they do not depend on threads or on other queries of the call.
The row search handles single queries, for which a BLAS product would wake spinning threads.
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
from memory.index.hashing import SKETCH_WORDS, Codes, HashFunctions, Sketches
from memory.index.neighbours import Floats, Ids, Neighbours, Positions, empty_answer
from sparse_core.errors import ImplementationError
from sparse_core.kernels import native

_SOURCE = Path(__file__).with_name("search.cpp")
_LOG = logging.getLogger(__name__)
#: Rotations that the library computes side by side.
_SETS = 8
#: Rows as two arrays: a fixed part, and a part that grows.
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
        ("mixing", ctypes.c_void_p),
        ("signs", ctypes.c_void_p),
        ("pairs", ctypes.c_void_p),
        ("buckets", ctypes.POINTER(_Buckets)),
        ("sketches", _Rows),
        *((name, ctypes.c_int64) for name in (
            "dim", "size", "groups", "functions", "width", "bits", "tables", "parts", "rows", "bucket_limit",
        )),
    )  # fmt: skip


class CompiledTables:
    """Search over the tables that existed at construction, safe during additions; created by :meth:`of`.

    Args:
        function: function of the library.
        index: its argument.
        kept: the arrays that the argument points to.
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
        """Return the search over some tables, or ``None`` if nothing can be compiled.

        Args:
            pairs: functions of each table.
            sketches: sketches of at least their rows, in both parts.
        """
        function = _function("lsh_search")
        if function is None:
            return None
        index, signs = _index_of(functions)
        numbers = np.array(pairs, np.int32)
        tables = (_Buckets * len(buckets))()
        for table, part in zip(tables, buckets, strict=True):
            wide = part.offsets.dtype == np.int64
            table.offsets, table.postings = part.offsets.ctypes.data, part.postings.ctypes.data
            table.start, table.address_bits, table.wide = part.start, part.address_bits, wide
        index.pairs, index.tables = numbers.ctypes.data, len(pairs)
        index.buckets, index.parts, index.rows = tables, len(buckets), buckets[-1].stop
        index.sketches, index.bucket_limit = _rows(sketches), BUCKET_LIMIT
        return cls(function, index, (functions, signs, numbers, tables, buckets, sketches))

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
        """Return the k best rows of the buckets and of the rows that are in no table.

        Args:
            queries: (queries, dim) unit vectors.
            depth: values per function that probes are chosen from.
            effort: probes, and rows to compare.
            vectors: the rows, in both parts.
            ids: (rows,) ids by position of all rows to search.
            mask: (rows,) rows that count, or ``None``.
        """
        found = empty_answer(len(queries), k)
        kept = _contiguous(ids, mask)
        self._function(
            self._index, ctypes.byref(_rows(vectors)), kept[0].ctypes.data, queries.ctypes.data, len(queries),
            k, depth, effort.probes, effort.rerank, len(ids), _address(kept[1]), found.scores.ctypes.data,
            found.ids.ctypes.data,
        )  # fmt: skip
        return found


def hash_rows(functions: HashFunctions, vectors: Floats) -> tuple[Codes, Sketches] | None:
    """Return the codes and sketches of (rows, dim) vectors, or ``None`` if nothing can be compiled."""
    function = _function("lsh_hash")
    if function is None:
        return None
    index, _signs = _index_of(functions)
    rows = np.ascontiguousarray(vectors, np.float32)
    codes = np.empty((len(rows), functions.functions), np.uint16)
    sketches = np.empty((len(rows), SKETCH_WORDS), np.uint64)
    function(ctypes.byref(index), rows.ctypes.data, len(rows), codes.ctypes.data, sketches.ctypes.data)
    return codes, sketches


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
    """Return the k rows with the highest products with one query, or ``None`` if nothing can be compiled.

    Args:
        query: (1, dim) unit vector.
        vectors: the rows, in both parts.
        ids: (rows,) ids by position of all rows to search.
        start: first row to search.
        mask: (rows,) rows that count, or ``None``.
        positions: (n,) int64 rows to search instead.
    """
    function = _function("rows_search")
    if function is None:
        return None
    stored, kept = _rows(vectors), _contiguous(ids, mask)
    stop = len(ids) if positions is None else len(positions)
    listed = None if positions is None else np.ascontiguousarray(positions, np.int64)
    places, marks = _address(listed), _address(kept[1])
    found = empty_answer(1, k)
    function(
        ctypes.byref(stored), kept[0].ctypes.data, query.ctypes.data, query.shape[1], k,
        places, start, stop, marks, found.scores.ctypes.data, found.ids.ctypes.data,
    )  # fmt: skip
    return found


def _index_of(functions: HashFunctions) -> tuple[_Index, Floats]:
    """Return the functions as the library reads them, and an array to which they point."""
    sets, size = functions.signs.shape
    groups = -(-sets // _SETS)
    padded = np.ones((groups * _SETS, size), np.float32)
    padded[:sets] = functions.signs
    signs = np.ascontiguousarray(padded.reshape(groups, _SETS, size).transpose(0, 2, 1))
    index = _Index(
        functions.mixing.ctypes.data, signs.ctypes.data, dim=functions.dim, size=size, groups=groups,
        functions=functions.functions, width=functions.width, bits=functions.bits,
    )  # fmt: skip
    return index, signs


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
    "lsh_hash": [*[_POINTER] * 2, _NUMBER, *[_POINTER] * 2],
    "rows_search": [*[_POINTER] * 3, *[_NUMBER] * 2, _POINTER, *[_NUMBER] * 2, *[_POINTER] * 3],
}


@cache
def _function(name: str) -> Any:
    """Return a function of the library, or ``None`` if it cannot be compiled."""
    try:
        function = getattr(native.load(_SOURCE), name)
    except ImplementationError as error:
        _LOG.info("vector search uses numpy, because its C++ code was not compiled: %s", error)
        return None
    function.argtypes = _ARGUMENTS[name]
    function.restype = None
    return function
