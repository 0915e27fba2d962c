"""CSR times a vector with one thread per row, as textbooks start: the slow baseline."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_core.formats import CSR


@triton.jit
def _row_kernel(row_ptr, col, values, x, y, rows, BLOCK: tl.constexpr):
    """A lane goes through the entries of its row."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = row < rows
    place = tl.load(row_ptr + row, mask=inside, other=0)
    end = tl.load(row_ptr + row + 1, mask=inside, other=0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    while tl.max(end - place, axis=0) > 0:
        more = place < end
        column = tl.load(col + place, mask=more, other=0)
        value = tl.load(values + place, mask=more, other=0.0)
        total += value * tl.load(x + column, mask=more, other=0.0)
        place += 1
    tl.store(y + row, total, mask=inside)


def naive_product(csr: CSR, x: Tensor) -> Callable[[], Tensor]:
    """Compute ``csr @ x`` in float32 at each call, always into the same memory."""
    rows = csr.shape[0]
    y = torch.empty(rows, device=x.device)

    def run() -> Tensor:
        _row_kernel[(triton.cdiv(rows, 128),)](csr.row_ptr, csr.col, csr.values, x, y, rows, BLOCK=128)
        return y

    return run
