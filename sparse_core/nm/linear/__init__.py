"""Product of an input with a packed n:m weight."""

from sparse_core.nm.linear.api import nm_linear
from sparse_core.nm.linear.choice import tuning
from sparse_core.nm.linear.common import Activation, LinearImpl
from sparse_core.nm.linear.product import UnpackedWarning

__all__ = ["Activation", "LinearImpl", "UnpackedWarning", "nm_linear", "tuning"]
