"""Selection of weights to keep: scores, one-shot pruning, sensitivities and the allocation of patterns."""

from sparse_core.nm.pruning.api import LayerReport, PruneReport, prune

__all__ = ["LayerReport", "PruneReport", "prune"]
