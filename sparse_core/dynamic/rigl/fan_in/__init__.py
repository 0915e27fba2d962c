"""Few rows times a weight with as many connections in every row."""

from sparse_core.dynamic.rigl.fan_in.api import MOST_ROWS, fan_in_product

__all__ = ["MOST_ROWS", "fan_in_product"]
