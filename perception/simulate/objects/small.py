"""Small objects on the road: motorcycles, traffic cones and barriers, in the sizes of nuScenes' boxes.

Every function returns a mesh with its origin on the ground under the centre, x forward.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from perception.simulate.mesh import Mesh, box, capsule, cylinder, merge_meshes
from perception.simulate.surface import Material


def sample_motorcycle(rng: np.random.Generator) -> Mesh:
    """Return a motorcycle or scooter of about 2.1 m, with or without a rider."""
    length, width = float(rng.normal(2.1, 0.12)), float(rng.normal(0.8, 0.06))
    paint = float(rng.uniform(0.05, 0.5))
    parts = [
        cylinder((along, -0.07, 0.31), (along, 0.07, 0.31), 0.31, Material.RUBBER, sides=14)
        for along in (-0.7, 0.72)
    ]
    parts.append(capsule((-0.55, 0, 0.68), (0.3, 0, 0.72), 0.17, Material.PAINT, paint))
    parts.append(capsule((-0.2, 0, 0.42), (0.25, 0, 0.42), 0.18, Material.METAL, 0.25))
    parts.append(capsule((0.72, 0, 0.31), (0.45, 0, 1.0), 0.05, Material.METAL))
    parts.append(capsule((0.42, -0.36, 1.03), (0.42, 0.36, 1.03), 0.035, Material.METAL))
    parts.append(cylinder((0.62, 0, 0.85), (0.66, 0, 0.85), 0.09, Material.REFLECTOR))
    parts.append(box((-0.88, 0, 0.68), (0.03, 0.2, 0.14), Material.REFLECTOR))
    height = 1.12
    if rng.random() < 0.6:
        cloth = float(rng.uniform(0.06, 0.4))
        height = float(rng.normal(1.52, 0.05))
        parts.append(capsule((-0.25, 0, 0.9), (-0.02, 0, 1.3), 0.17, Material.CLOTH, cloth))
        parts.append(capsule((0.03, 0, 1.52), (0.05, 0, 1.6), 0.13, Material.PAINT, 0.3))
        for side in (-1.0, 1.0):
            knee = (0.15, side * 0.24, 0.72)
            parts.append(capsule((-0.22, side * 0.1, 0.85), knee, 0.085, Material.CLOTH, cloth))
            parts.append(capsule(knee, (-0.1, side * 0.2, 0.35), 0.065, Material.CLOTH, cloth))
            parts.append(
                capsule((0.0, side * 0.2, 1.25), (0.4, side * 0.32, 1.05), 0.055, Material.CLOTH, cloth)
            )
    return merge_meshes(parts).resized(length, width, height)


def sample_cone(rng: np.random.Generator) -> Mesh:
    """Return a traffic cone with a foot and two bright bands."""
    height = float(np.clip(rng.normal(0.95, 0.15), 0.5, 1.3))
    foot = 0.38 * height
    parts = [box((0, 0, 0.02), (foot, foot, 0.04), Material.RUBBER, 0.1)]
    edges = [0.04, 0.35, 0.55, 0.7, 0.85, 1.0]
    for number, (low, high) in enumerate(pairwise(edges)):
        bright = number % 2 == 1
        radii = [0.42 * foot * (1 - 0.85 * share) for share in (low, high)]
        parts.append(
            cylinder(
                (0, 0, low * height), (0, 0, high * height), radii[0],
                Material.REFLECTOR if bright else Material.PAINT, 0.7 if bright else 0.3,
                end_radius=radii[1], sides=10,
            )
        )  # fmt: skip
    return merge_meshes(parts).resized(foot, foot, height)


def sample_barrier(rng: np.random.Generator) -> Mesh:
    """Return a barrier across x, 2.5 m wide: concrete, or a fence with a foot at either end."""
    thick, wide, high = 0.5, float(rng.normal(2.45, 0.2)), float(rng.normal(1.0, 0.06))
    if rng.random() < 0.6:
        tone = float(rng.uniform(0.3, 0.55))
        parts = [
            box((0, 0, 0.12), (thick, wide, 0.24), Material.MASONRY, tone),
            box((0, 0, 0.34), (0.36, wide, 0.24), Material.MASONRY, tone),
            box((0, 0, 0.7), (0.2, wide, 0.6), Material.MASONRY, tone),
        ]
    else:
        parts = [
            box((0, 0, level), (0.05, wide, 0.2), Material.PAINT, tone)
            for level, tone in ((0.9, 0.6), (0.5, 0.35))
        ]
        for side in (-1.0, 1.0):
            parts.append(box((0, side * 0.42 * wide, 0.5), (0.06, 0.06, 1.0), Material.METAL))
            parts.append(box((0, side * 0.42 * wide, 0.05), (thick, 0.12, 0.1), Material.RUBBER))
    return merge_meshes(parts).resized(thick, wide, high)
