"""Round inputs to int8 with one scale a tensor."""

from sparse_core.nm.layers.rounding.api import quantise_input

__all__ = ["quantise_input"]
