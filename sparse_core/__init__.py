"""Sparse building blocks for perception and memory, useful on their own."""

from __future__ import annotations

from typing import Any

from sparse_core.common.matrix_operations import operations

__version__ = "0.2.0"


def _matmul(left: Any, right: Any) -> Any:
    # Products load scipy, so they are imported with the first one; only the root knows formats and linalg.
    from sparse_core.linalg.products.operator import matmul

    return matmul(left, right)


operations.matmul = _matmul
