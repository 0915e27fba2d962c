"""Timing of the sparse detector against its dense baseline on this machine, as printed by ``perceive
bench``.
"""

from perception.comparison.measure import Comparison, SideTimes, compare
from perception.comparison.sides import Side, sides_for

__all__ = ["Comparison", "Side", "SideTimes", "compare", "sides_for"]
