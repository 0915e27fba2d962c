"""Detection within a time budget: prepared levels of sparsity, and a detector that chooses among them."""

from perception.levels.budget import BudgetedDetector, LevelUse
from perception.levels.level import Level, default_levels
from perception.levels.selection import important_points
from perception.levels.thinning import thinned

__all__ = ["BudgetedDetector", "Level", "LevelUse", "default_levels", "important_points", "thinned"]
