"""Scenery along streets: buildings, plants, walls, fences, poles, signs and clutter.

Every function returns a mesh with its origin on the ground under the centre. Its long side is along x and its
front faces -y. Lengths are in metres.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from perception.simulate.mesh import (
    Mesh,
    box,
    capsule,
    cylinder,
    leaves,
    merge_meshes,
    tubes,
    uniform_mesh,
)
from perception.simulate.objects.people import bicycle_parts
from perception.simulate.surface import Material


def building(length: float, depth: float, height: float, rng: np.random.Generator) -> Mesh:
    """Return a house with windows, a door and a flat or gabled roof."""
    wall = float(rng.uniform(0.22, 0.48))
    parts = [box((0, 0, height / 2 - 0.5), (length, depth, height + 1.0), Material.MASONRY, wall)]
    parts.append(_windows(length, depth, height))
    parts.append(
        box((float(rng.uniform(-0.3, 0.3)) * length, -depth / 2, 1.0), (1.0, 0.12, 2.1), Material.WOOD)
    )
    if rng.random() < 0.6:
        parts.append(_gable(length + 0.6, depth + 0.8, height, float(rng.uniform(2.0, 4.0))))
    for _ in range(int(rng.integers(0, 4))):
        parts.append(_projection(length, depth, height, wall, rng))
    return merge_meshes(parts)


def _windows(length: float, depth: float, height: float) -> Mesh:
    """Return panes on all four walls, 3 cm in front of them."""
    z = np.arange(1.6, height - 0.8, 2.9)
    if not len(z):
        z = np.array([1.4])
    front = np.arange(-length / 2 + 1.4, length / 2 - 0.9, 2.6)
    side = np.arange(-depth / 2 + 1.6, depth / 2 - 0.9, 3.1)
    quads = []
    for sign in (-1.0, 1.0):
        quads.append(_panes(front, z, np.array([1.0, 0, 0]), np.array([0, sign * (depth / 2 + 0.03), 0])))
        quads.append(_panes(side, z, np.array([0, 1.0, 0]), np.array([sign * (length / 2 + 0.03), 0, 0])))
    corners = np.concatenate(quads)
    first = np.arange(len(corners))[:, None] * 4
    triangles = np.concatenate([first + np.array([0, 1, 2]), first + np.array([0, 2, 3])])
    return uniform_mesh(corners.reshape(-1, 3), triangles, Material.GLASS)


def _panes(
    along: npt.NDArray[np.float64],
    z: npt.NDArray[np.float64],
    direction: npt.NDArray[np.float64],
    offset: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Return (panes, 4, 3) corners of windows of 1.2 x 1.4 m on one wall."""
    centers = [a * direction + offset + np.array([0, 0, h]) for a in along for h in z]
    up = np.array([0, 0, 0.7])
    corners = [[c - 0.6 * direction - up, c + 0.6 * direction - up, c + 0.6 * direction + up,
                c - 0.6 * direction + up] for c in centers]  # fmt: skip
    return np.array(corners, np.float64).reshape(-1, 4, 3)


def _gable(length: float, depth: float, eaves: float, rise: float) -> Mesh:
    x, y = length / 2, depth / 2
    vertices = [[-x, -y, eaves], [x, -y, eaves], [x, y, eaves], [-x, y, eaves],
                [-x, 0, eaves + rise], [x, 0, eaves + rise]]  # fmt: skip
    triangles = [[0, 1, 5], [0, 5, 4], [3, 2, 5], [3, 5, 4], [0, 3, 4], [1, 2, 5], [0, 1, 2], [0, 2, 3]]
    return uniform_mesh(vertices, triangles, Material.MASONRY, 0.25)


def _projection(length: float, depth: float, height: float, wall: float, rng: np.random.Generator) -> Mesh:
    """Return a balcony, a bay or a porch on the front."""
    x = float(rng.uniform(-0.4, 0.4)) * length
    if rng.random() < 0.5 and height > 5:
        level = 2.9 * float(rng.integers(1, max(2, int(height / 2.9))))
        return box((x, -depth / 2 - 0.6, level), (2.6, 1.2, 1.0), Material.MASONRY, wall)
    return box((x, -depth / 2 - 0.4, height / 3), (2.2, 0.8, height / 1.5), Material.MASONRY, wall)


def tree(height: float, rng: np.random.Generator, *, conifer: bool = False) -> Mesh:
    """Return a trunk, some branches and a crown of leaf clusters that rays can pass through."""
    crown_base = height * (0.12 if conifer else float(rng.uniform(0.25, 0.42)))
    trunk_radius = 0.022 * height
    trunk = cylinder((0, 0, -0.3), (0, 0, 0.75 * height), trunk_radius, Material.BARK, end_radius=0.05)
    center, radius = (crown_base + height) / 2, height * float(rng.uniform(0.24, 0.36))
    count = int(np.clip(55 * radius * (height - crown_base), 150, 1500))
    points = _ball(count, rng)
    if conifer:
        level = rng.random(count) ** 1.5
        points = np.stack(
            [points[:, 0] * (1 - level) * 0.7, points[:, 1] * (1 - level) * 0.7, 2 * level - 1], 1
        )
    half = (height - crown_base) / 2
    centers = points * np.array([radius, radius, half]) + np.array([0, 0, center])
    branches = [_branch(crown_base, radius, half, rng) for _ in range(0 if conifer else 4)]
    tone = float(rng.uniform(0.25, 0.45))
    return merge_meshes([trunk, *branches, leaves(centers.astype(np.float32), 0.3, rng, tone)])


def _branch(base: float, radius: float, half: float, rng: np.random.Generator) -> Mesh:
    angle, reach = rng.uniform(0, 2 * np.pi), radius * rng.uniform(0.5, 0.9)
    tip = (reach * np.cos(angle), reach * np.sin(angle), base + half * rng.uniform(0.6, 1.3))
    return cylinder((0, 0, base), tip, 0.06, Material.BARK, end_radius=0.02, sides=4)


def _ball(count: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return (count, 3) points in a unit ball, denser near its surface, with a lumpy outline."""
    points = rng.normal(size=(count, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True) + 1e-9
    lumps = rng.normal(size=(4, 3))
    outline = 0.85 + 0.12 * np.sin(points @ lumps.T * 2.5).sum(1) / 2
    return np.asarray(points * (outline * rng.random(count) ** 0.45)[:, None])


def bush(radius: float, height: float, rng: np.random.Generator) -> Mesh:
    """Return a rounded shrub."""
    points = _ball(int(np.clip(220 * radius * height, 60, 500)), rng)
    points[:, 2] = np.abs(points[:, 2])
    centers = (points * np.array([radius, radius, height])).astype(np.float32)
    core = capsule((0, 0, 0), (0, 0, 0.5 * height), 0.5 * radius, Material.LEAF, 0.2, sides=6)
    return merge_meshes([core, leaves(centers, 0.16, rng, float(rng.uniform(0.25, 0.45)))])


def hedge(length: float, thickness: float, height: float, rng: np.random.Generator) -> Mesh:
    """Return a clipped hedge: dense foliage around a dark core."""
    count = int(np.clip(45 * length * height, 50, 2500))
    centers = (rng.random((count, 3)) - [0.5, 0.5, 0.0]) * [length, thickness, height]
    core = box((0, 0, 0.4 * height), (0.96 * length, 0.5 * thickness, 0.85 * height), Material.LEAF, 0.2)
    return merge_meshes([core, leaves(centers.astype(np.float32), 0.14, rng)])


def wall(length: float, height: float, rng: np.random.Generator) -> Mesh:
    """Return a garden wall with a coping."""
    tone = float(rng.uniform(0.22, 0.45))
    body = box((0, 0, height / 2 - 0.2), (length, 0.24, height + 0.4), Material.MASONRY, tone)
    return merge_meshes([body, box((0, 0, height + 0.03), (length, 0.34, 0.07), Material.MASONRY, tone)])


def fence(length: float, height: float, rng: np.random.Generator) -> Mesh:
    """Return a picket fence, a wire fence or a guard rail."""
    kind = int(rng.integers(0, 3))
    posts = np.arange(-length / 2, length / 2 + 0.01, 2.0)
    parts = [box((float(x), 0, height / 2), (0.08, 0.08, height), Material.METAL) for x in posts]
    if kind == 0:
        pickets = np.arange(-length / 2, length / 2, 0.16)
        parts += [box((float(x), -0.05, height / 2), (0.08, 0.02, height), Material.WOOD) for x in pickets]
    elif kind == 1:
        parts.append(box((0, 0, height / 2), (length, 0.01, height), Material.MESH_WIRE))
    else:
        parts.append(box((0, -0.08, 0.6), (length, 0.06, 0.32), Material.METAL))
    return merge_meshes(parts)


def lamp_post(rng: np.random.Generator) -> Mesh:
    """Return a street lamp with an arm over the road."""
    height = float(rng.uniform(4.5, 8.0))
    post = cylinder((0, 0, -0.2), (0, 0, height), 0.085, Material.METAL, end_radius=0.05)
    arm = tubes([(0, 0, height), (0, -1.2, height + 0.2)], 0.04, Material.METAL)
    return merge_meshes([post, arm, box((0, -1.3, height + 0.2), (0.25, 0.6, 0.12), Material.METAL)])


def traffic_sign(rng: np.random.Generator) -> Mesh:
    """Return a retro-reflecting round or square plate on a pole, facing +x and -x."""
    height = float(rng.uniform(2.1, 2.7))
    pole = cylinder((0, 0, -0.2), (0, 0, height + 0.3), 0.035, Material.METAL, sides=6)
    if rng.random() < 0.5:
        plate = cylinder((0.04, 0, height), (0.06, 0, height), 0.3, Material.REFLECTOR, sides=12)
    else:
        plate = box((0.05, 0, height), (0.02, 0.55, 0.45), Material.REFLECTOR, 0.85)
    return merge_meshes([pole, plate])


def traffic_light() -> Mesh:
    """Return a signal on a pole."""
    pole = cylinder((0, 0, -0.2), (0, 0, 3.4), 0.07, Material.METAL)
    return merge_meshes([pole, box((0.1, 0, 2.7), (0.28, 0.32, 0.9), Material.METAL, 0.1)])


def clutter(rng: np.random.Generator) -> Mesh:
    """Return a bin, bollard, box, bench, parked bicycle or cone: objects that detectors mistake for
    people.
    """
    kind = int(rng.integers(0, 6))
    if kind == 0:
        body = box((0, 0, 0.5), (0.58, 0.65, 1.0), Material.METAL, float(rng.uniform(0.1, 0.4)))
        return merge_meshes([body, box((0, 0.05, 1.04), (0.62, 0.7, 0.08), Material.METAL, 0.1)])
    if kind == 1:
        return merge_meshes(
            [cylinder((0, 0, -0.1), (0, 0, float(rng.uniform(0.7, 1.0))), 0.08, Material.METAL)]
        )
    if kind == 2:
        size = (float(rng.uniform(0.6, 1.3)), 0.4, float(rng.uniform(1.0, 1.6)))
        return box((0, 0, size[2] / 2), size, Material.METAL, 0.35)
    if kind == 3:
        seat = box((0, 0, 0.45), (1.7, 0.45, 0.06), Material.WOOD)
        back = box((0, 0.22, 0.75), (1.7, 0.05, 0.4), Material.WOOD)
        legs = [box((x, 0, 0.21), (0.08, 0.4, 0.42), Material.METAL) for x in (-0.7, 0.7)]
        return merge_meshes([seat, back, *legs])
    if kind == 4:
        return merge_meshes(bicycle_parts())
    return cylinder((0, 0, 0), (0, 0, 0.7), 0.2, Material.REFLECTOR, 0.6, end_radius=0.03)


def billboard(rng: np.random.Generator) -> Mesh:
    """Return an advertising pillar or a bus shelter."""
    if rng.random() < 0.5:
        return cylinder((0, 0, 0), (0, 0, 2.9), 0.65, Material.MASONRY, sides=14)
    posts = [box((x, y, 1.2), (0.08, 0.08, 2.4), Material.METAL) for x in (-1.9, 1.9) for y in (-0.6, 0.6)]
    back = box((0, 0.6, 1.2), (3.8, 0.02, 2.0), Material.GLASS)
    return merge_meshes([*posts, back, box((0, 0, 2.45), (4.1, 1.5, 0.1), Material.METAL)])
