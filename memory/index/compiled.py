"""The search of hash tables in C++, compiled when it is first needed: one pass where arrays take a dozen.

It compares the same rows as :mod:`memory.index.lsh` does with arrays. Scores are sums in another order: they
differ from those of arrays in their last bits, but not by what is searched together, nor by threads.
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
from memory.index.growing import GrowingRows
from memory.index.hashing import HashFunctions
from memory.index.neighbours import Floats, Ids, Neighbours, nothing
from sparse_core import native
from sparse_core.errors import ImplementationError

_SOURCE = Path(__file__).with_name("lsh.cpp")
#: Sums as they are written: nothing is rounded once where it says twice.
_FLAGS = ("-ffp-contract=off",)
_LOG = logging.getLogger(__name__)


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
        ("ids", ctypes.c_void_p),
        ("sketches", _Rows),
        ("vectors", _Rows),
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
        ids: Ids,
        sketches: GrowingRows[np.uint64],
        vectors: GrowingRows[np.float16],
    ) -> CompiledTables | None:
        """Those over some rows; ``None`` where nothing is compiled.

        Args:
            functions: of the family ``"cross-polytope"``.
            pairs: functions of each table.
            buckets: of the tables.
            ids: (rows,) by position, at least those of the tables.
            sketches, vectors: of the same rows.
        """
        function = _function()
        if function is None:
            return None
        directions = np.ascontiguousarray(functions.directions)
        numbers = np.array(pairs, np.int32)
        ids = np.ascontiguousarray(ids)
        tables = (_Buckets * len(buckets))()
        for table, part in zip(tables, buckets, strict=True):
            wide = part.offsets.dtype == np.int64
            table.offsets, table.postings = part.offsets.ctypes.data, part.postings.ctypes.data
            table.start, table.address_bits, table.wide = part.start, part.address_bits, wide
        parts = sketches.parts, vectors.parts
        index = _Index(
            directions.ctypes.data, numbers.ctypes.data, tables, ids.ctypes.data, _rows(*parts[0]), _rows(*parts[1]),
            len(directions), directions.shape[1], functions.functions, functions.width, functions.bits,
            len(pairs), len(buckets), buckets[-1].stop, BUCKET_LIMIT,
        )  # fmt: skip
        return cls(function, index, (directions, numbers, ids, tables, buckets, parts))

    def search(
        self, queries: Floats, k: int, depth: int, effort: Effort, mask: NDArray[np.bool_] | None
    ) -> Neighbours:
        """The k best of what the buckets hold.

        Args:
            queries: (queries, dim) unit vectors.
            k: of each.
            depth: values of each function that probes are chosen among.
            effort: probes, and rows that are compared.
            mask: (rows,) which rows count, or ``None``.
        """
        found = nothing(len(queries), k)
        if mask is not None:
            mask = np.ascontiguousarray(mask)
        self._function(
            self._index, queries.ctypes.data, len(queries), k, depth, effort.probes, effort.rerank,
            None if mask is None else mask.ctypes.data, found.scores.ctypes.data, found.ids.ctypes.data,
        )  # fmt: skip
        return found


def _rows(fixed: NDArray[Any], grown: NDArray[Any]) -> _Rows:
    return _Rows(fixed.ctypes.data, grown.ctypes.data, len(fixed))


@cache
def _function() -> Any:
    """``lsh_search`` of the library; ``None`` where it cannot be compiled."""
    try:
        function = native.load(_SOURCE, _FLAGS).lsh_search
    except ImplementationError as error:
        _LOG.info("hash tables are searched with arrays: %s", error)
        return None
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    function.argtypes = [pointer, pointer, *[number] * 5, *[pointer] * 3]
    function.restype = None
    return function
