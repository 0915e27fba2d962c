"""Which memories are of the same thing, and the one memory that they become.

A memory that is gone, or has moved, is joined with what was seen before. A sight after it was gone is joined
only where both have embeddings that are alike, and is the same thing come back then, with the visits of both;
otherwise it stays a memory of its own, and the one that is gone stays as history.
"""

from memory.merging.fusion import fuse
from memory.merging.matching import MergeOptions
from memory.merging.proposals import MergeProposal, propose_merges

__all__ = ["MergeOptions", "MergeProposal", "fuse", "propose_merges"]
