"""What is kept of a stream: the best share of each place and time window, and everything that is unique.

- :mod:`memory.reservoir.config`: how much is kept.
- :mod:`memory.reservoir.window`: a place during a time window, and what gives way there.
- :mod:`memory.reservoir.things`: the unique memories of a place, each of which stands for a thing.
- :mod:`memory.reservoir.deciding`: the decisions, and the file that they are gone on with from.
"""

from memory.reservoir.config import LONGEST_S, ReservoirConfig
from memory.reservoir.deciding import FORMAT, Decision, Reservoir

__all__ = ["FORMAT", "LONGEST_S", "Decision", "Reservoir", "ReservoirConfig"]
