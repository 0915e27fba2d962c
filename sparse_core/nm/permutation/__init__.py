"""Order of the input channels of layers, so that n:m pruning keeps more of their weights."""

from sparse_core.nm.permutation.model import PermutationReport, permute_model
from sparse_core.nm.permutation.search import Permutation, permute_channels

__all__ = ["Permutation", "PermutationReport", "permute_channels", "permute_model"]
