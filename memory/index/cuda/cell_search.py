"""The search of cells: which implementation runs."""

from __future__ import annotations

from torch import Tensor

from memory.index.cuda.cells import Candidates, Cells, Effort, distances_read, probe, take
from memory.index.cuda.implementation import chosen
from sparse_core.dispatch import Impl


def candidates(
    cells: Cells, products: Tensor, effort: Effort, overflow: Tensor, *, impl: Impl = "auto"
) -> Candidates:
    """Rows of the lowest distance in the cells nearest to each query.

    Args:
        cells: of the index.
        products: (queries, pivots + 256) float16 of the queries, see :meth:`Cells.products`.
        effort: fixed sizes.
        overflow: (2,) int64 queries whose cells held more than ``capacity`` rows and the rows cut; added to.
        impl: ``"reference"``, ``"triton"`` or ``"auto"``.
    """
    if chosen(impl, products) == "triton":
        from memory.index.cuda import cells_triton

        return cells_triton.candidates(cells, products, effort, overflow)
    probed = probe(cells, products, effort, overflow)
    return take(cells, *distances_read(cells, probed, effort.capacity), effort.rerank)
