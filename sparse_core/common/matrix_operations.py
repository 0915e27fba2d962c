"""Registry of operations that matrices call but must not import.

The formats must not import conversions, algebra or :mod:`sparse_core.linalg`, which import the formats
(docs/decisions/0004-layout.md). These modules register their functions here when they are imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor  # Not imported at run time, because the package's root imports this module.


class MatrixOperations:
    """Functions that methods of ``sparse_core.formats.SparseMatrix`` call; ``Any`` is a matrix.

    Attributes:
        matmul: ``left @ right``, at least one of which is a matrix; ``NotImplemented`` for other types.
        add, multiply, at_entries, take_rows, take_columns, diagonal: of :mod:`sparse_core.formats.algebra`.
        from_dense, from_scipy, from_torch: of :mod:`sparse_core.formats.convert`.
        describe: of :mod:`sparse_core.formats.summary.describe`.
    """

    matmul: Callable[[Any, Any], Any]
    add: Callable[[Any, Any], Any]
    multiply: Callable[[Any, Any], Any]
    at_entries: Callable[[Any, Tensor, Callable[[Tensor, Tensor], Tensor]], Any]
    take_rows: Callable[[Any, Tensor | range], Any]
    take_columns: Callable[[Any, Tensor | range], Any]
    diagonal: Callable[[Any, int], Tensor]
    from_dense: Callable[[Any], Any]
    from_scipy: Callable[[Any], Any]
    from_torch: Callable[[Tensor], Any]
    describe: Callable[[Any], Any]


operations = MatrixOperations()
