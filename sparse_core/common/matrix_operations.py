"""What matrices do by modules that stand above them in the order of imports.

The formats must not import conversions, algebra or :mod:`sparse_core.linalg`, which import the formats
(docs/decisions/0004-layout.md). Who has such a function registers it here when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor  # Not loaded here: the package's root imports this, and torch takes seconds.


class MatrixOperations:
    """Functions that the methods of ``sparse_core.formats.SparseMatrix`` call; ``Any`` is a matrix.

    Attributes:
        matmul: ``left @ right``, of which one at least is a matrix; ``NotImplemented`` where the other is
            neither that nor a tensor.
        add, multiply, at_entries, take_rows, diagonal: of :mod:`sparse_core.formats.algebra`.
        from_dense, from_scipy, from_torch: of :mod:`sparse_core.formats.convert`.
        describe: of :mod:`sparse_core.formats.summary.describe`.
    """

    matmul: Callable[[Any, Any], Any]
    add: Callable[[Any, Any], Any]
    multiply: Callable[[Any, Any], Any]
    at_entries: Callable[[Any, Tensor, Callable[[Tensor, Tensor], Tensor]], Any]
    take_rows: Callable[[Any, Tensor], Any]
    diagonal: Callable[[Any, int], Tensor]
    from_dense: Callable[[Any], Any]
    from_scipy: Callable[[Any], Any]
    from_torch: Callable[[Tensor], Any]
    describe: Callable[[Any], Any]


operations = MatrixOperations()
