"""Products of a sparse and a dense matrix, with gradients and for ``torch.compile``."""

from sparse_core.linalg.products.api import sddmm, spmm, spmv

__all__ = ["sddmm", "spmm", "spmv"]
