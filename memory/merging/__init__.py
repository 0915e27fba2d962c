"""Merging: which memories belong to one object, and the memory that they become.

A memory that is gone or has moved is merged with earlier observations. A later observation joins it only if
both have similar embeddings; the object then came back, with the visits of both. Otherwise it becomes a new
memory, and the old one stays as history.
"""

from memory.merging.fusion import fuse
from memory.merging.matching import MergeOptions
from memory.merging.proposals import MergeProposal, propose_merges

__all__ = ["MergeOptions", "MergeProposal", "fuse", "propose_merges"]
