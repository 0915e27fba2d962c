"""Near-nullspace vectors, which algebraic multigrid must represent on coarse levels."""

from __future__ import annotations

import torch
from torch import Tensor


def rigid_body_modes(coordinates: Tensor) -> Tensor:
    """Return translations and rotations of a body: the near-nullspace of linear elasticity.

    Elasticity without boundary conditions maps them to zero, and multigrid without rotations converges
    slowly. Rotations are about the centre and scaled to the length of the translations.

    Args:
        coordinates: (N, 2) or (N, 3) floating point, positions of the nodes, any unit. The unknowns are the
            displacements node by node: (x, y) of node 0, (x, y) of node 1, and so on. If the matrix lacks
            rows of fixed unknowns, remove these rows from the result too.

    Returns:
        (2 N, 3) or (3 N, 6), dtype and device of ``coordinates``: translations, then rotations.

    Raises:
        TypeError: not a floating-point tensor.
        ValueError: another shape, or coordinates that are not finite.
    """
    if not isinstance(coordinates, Tensor) or not coordinates.is_floating_point():
        found = coordinates.dtype if isinstance(coordinates, Tensor) else type(coordinates).__name__
        raise TypeError(f"coordinates must be a floating-point tensor, got {found}")
    if coordinates.ndim != 2 or coordinates.shape[1] not in (2, 3):
        raise ValueError(f"coordinates must have shape (N, 2) or (N, 3), got {tuple(coordinates.shape)}")
    if not bool(torch.isfinite(coordinates).all()):
        raise ValueError("coordinates must be finite")
    nodes, axes = coordinates.shape
    centred = coordinates - coordinates.mean(dim=0) if nodes else coordinates
    planes = [(0, 1)] if axes == 2 else [(1, 2), (2, 0), (0, 1)]
    modes = coordinates.new_zeros(nodes, axes, axes + len(planes))
    for axis in range(axes):
        modes[:, axis, axis] = 1
    for mode, (first, second) in enumerate(planes, start=axes):
        modes[:, first, mode] = -centred[:, second]
        modes[:, second, mode] = centred[:, first]
    modes = modes.reshape(nodes * axes, axes + len(planes))
    length = torch.linalg.vector_norm(modes[:, axes:], dim=0)
    modes[:, axes:] *= torch.where(length > 0, nodes**0.5 / length, torch.zeros_like(length))
    return modes
