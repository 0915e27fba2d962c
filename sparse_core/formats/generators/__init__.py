"""Generators of test matrices: stencils on grids, random rows, blocks, bands.

Random matrices are drawn on the CPU, so a seed gives the same matrix on every device. :func:`generate` makes
a matrix by name, such as ``"poisson-2d:512"``.
"""

from sparse_core.formats.generators.named import generate, names
from sparse_core.formats.generators.random_rows import block_sparse, power_law, random_uniform
from sparse_core.formats.generators.stencils import (
    banded,
    convection_diffusion,
    diagonal,
    poisson_2d,
    poisson_3d,
    stencil,
    stencil_27,
)

__all__ = [
    "banded",
    "block_sparse",
    "convection_diffusion",
    "diagonal",
    "generate",
    "names",
    "poisson_2d",
    "poisson_3d",
    "power_law",
    "random_uniform",
    "stencil",
    "stencil_27",
]
