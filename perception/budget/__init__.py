"""Detection within a time or energy budget, by choosing among prepared levels of sparsity."""

from perception.budget.detector import BudgetedDetector, LevelUse
from perception.budget.selection import important_points
from perception.model.level import Level, default_levels
from perception.model.thinning import thinned

__all__ = ["BudgetedDetector", "Level", "LevelUse", "default_levels", "important_points", "thinned"]
