"""Dense product, sampled at the stored positions of a sparse matrix."""

from sparse_core.linalg.sddmm.api import sddmm

__all__ = ["sddmm"]
