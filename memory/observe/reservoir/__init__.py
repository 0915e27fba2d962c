"""What is kept of a stream: the best share of each place and time window, and everything that is unique."""

from memory.observe.reservoir.reservoir import FORMAT, Decision, Reservoir

__all__ = ["FORMAT", "Decision", "Reservoir"]
