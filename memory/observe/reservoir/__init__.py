"""Reservoir: keeps the best share of each place and time window, and all unique memories."""

from memory.observe.reservoir.reservoir import FORMAT, Decision, Reservoir

__all__ = ["FORMAT", "Decision", "Reservoir"]
