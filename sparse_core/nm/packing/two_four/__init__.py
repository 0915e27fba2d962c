"""Pruning of a weight to 2:4 and packing for sparse tensor cores in one pass, for training."""

from sparse_core.nm.packing.two_four.api import prune_and_pack, prune_and_pack_both
from sparse_core.nm.packing.two_four.common import Compressed24, PackedBoth

__all__ = ["Compressed24", "PackedBoth", "prune_and_pack", "prune_and_pack_both"]
