"""Which memories are of the same thing, and the one memory that they become."""

from memory.merging.fusion import fuse
from memory.merging.matching import MergeOptions
from memory.merging.proposals import MergeProposal, propose_merges

__all__ = ["MergeOptions", "MergeProposal", "fuse", "propose_merges"]
