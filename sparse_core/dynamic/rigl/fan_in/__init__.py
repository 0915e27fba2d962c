"""Products of a few rows with a weight that has the same number of connections in every row."""

from sparse_core.dynamic.rigl.fan_in.api import MOST_ROWS, fan_in_product

__all__ = ["MOST_ROWS", "fan_in_product"]
