"""The sparse detector against its dense twin on the machine at hand; ``perceive bench`` prints it."""

from perception.comparison.measure import Comparison, SideTimes, compare
from perception.comparison.sides import Side, sides_for

__all__ = ["Comparison", "Side", "SideTimes", "compare", "sides_for"]
