"""Layout of batches that the implementations of spmm share."""

from __future__ import annotations

from torch import Tensor


def side_by_side(dense: Tensor) -> Tensor:
    """Reshape (batch, K, N) to (K, batch * N); a (K, N) matrix stays."""
    if dense.ndim == 2:
        return dense
    batch, rows, columns = dense.shape
    return dense.transpose(0, 1).reshape(rows, batch * columns)


def apart(product: Tensor, dense: Tensor) -> Tensor:
    """Undo :func:`side_by_side` on a product (M, batch * N), for the batch of ``dense``."""
    if dense.ndim == 2:
        return product
    return product.view(len(product), dense.shape[0], dense.shape[2]).transpose(0, 1)
