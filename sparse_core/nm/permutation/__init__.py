"""Order of the input channels of layers, so that n:m pruning keeps more of their weights."""

from sparse_core.nm.permutation.search import Permutation, permute_channels

__all__ = ["Permutation", "permute_channels"]
