"""Rounding of inputs to int8 with one scale per row, or with a given scale."""

from sparse_core.nm.layers.rounding.api import quantise_input

__all__ = ["quantise_input"]
