"""Triangle meshes with a material per triangle, and basic solids."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perception.simulate.surface import SURFACES, Material

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Mesh:
    """Triangles with materials.

    Attributes:
        vertices: (V, 3) float32, metres.
        triangles: (T, 3) int32, rows of ``vertices``, in any winding.
        materials: (T,) uint8, values of ``Material``.
        reflectivity: (T,) float32 in [0, 1], intensity at normal incidence.
    """

    vertices: FloatArray
    triangles: IntArray
    materials: npt.NDArray[np.uint8]
    reflectivity: FloatArray

    def __len__(self) -> int:
        return len(self.triangles)

    def transformed(self, target_from_mesh: npt.NDArray[np.floating]) -> Mesh:
        """Return the mesh in another frame; ``target_from_mesh`` is a 4x4 affine transform."""
        rotation, shift = target_from_mesh[:3, :3], target_from_mesh[:3, 3]
        vertices = (self.vertices.astype(np.float64) @ rotation.T + shift).astype(np.float32)
        return Mesh(vertices, self.triangles, self.materials, self.reflectivity)

    def moved(self, x: float, y: float, z: float = 0.0, *, yaw_rad: float = 0.0) -> Mesh:
        """Return the mesh rotated about its vertical axis and then shifted (metres)."""
        return self.transformed(pose_matrix(x, y, z, yaw_rad))

    def resized(self, length: float, width: float, height: float) -> Mesh:
        """Return the mesh scaled and shifted to fill [-l/2, l/2] x [-w/2, w/2] x [0, h] exactly."""
        low, high = self.vertices.min(0), self.vertices.max(0)
        size = np.array([length, width, height], np.float32)
        vertices = (self.vertices - (low + high) / 2) / (high - low) * size
        vertices[:, 2] += height / 2
        return Mesh(vertices.astype(np.float32), self.triangles, self.materials, self.reflectivity)


def pose_matrix(x: float, y: float, z: float, yaw_rad: float) -> npt.NDArray[np.float64]:
    """Return the 4x4 target_from_source transform of a rotation about z followed by a shift (metres)."""
    cosine, sine = np.cos(yaw_rad), np.sin(yaw_rad)
    return np.array(
        [[cosine, -sine, 0.0, x], [sine, cosine, 0.0, y], [0.0, 0.0, 1.0, z], [0.0, 0.0, 0.0, 1.0]]
    )


def uniform_mesh(
    vertices: npt.ArrayLike, triangles: npt.ArrayLike, material: Material, reflectivity: float | None = None
) -> Mesh:
    """Return a mesh of one material; ``reflectivity`` defaults to the material's own."""
    faces = np.asarray(triangles, np.int32).reshape(-1, 3)
    value = SURFACES[material].reflectivity if reflectivity is None else reflectivity
    return Mesh(
        np.asarray(vertices, np.float32).reshape(-1, 3),
        faces,
        np.full(len(faces), int(material), np.uint8),
        np.full(len(faces), value, np.float32),
    )


def merge_meshes(meshes: Sequence[Mesh]) -> Mesh:
    """Merge meshes into one; an empty sequence gives an empty mesh."""
    if not meshes:
        return uniform_mesh(np.zeros((0, 3)), np.zeros((0, 3)), Material.ASPHALT)
    starts = np.cumsum([0] + [len(mesh.vertices) for mesh in meshes[:-1]])
    return Mesh(
        np.concatenate([mesh.vertices for mesh in meshes]),
        np.concatenate(
            [mesh.triangles + np.int32(start) for mesh, start in zip(meshes, starts, strict=True)]
        ),
        np.concatenate([mesh.materials for mesh in meshes]),
        np.concatenate([mesh.reflectivity for mesh in meshes]),
    )


def lofted_triangles(stations: int, ring: int, *, closed: bool = True) -> IntArray:
    """Return the triangles of a skin over ``stations`` rings of ``ring`` vertices each.

    With ``edges = ring`` (``ring - 1`` if open), the two triangles of edge e between stations s and s + 1 are
    rows ``2 * (s * edges + e)`` and the next, (2 * (stations - 1) * edges, 3) int32.
    """
    edges = ring if closed else ring - 1
    station, edge = np.meshgrid(np.arange(stations - 1), np.arange(edges), indexing="ij")
    a = (station * ring + edge).ravel()
    b = (station * ring + (edge + 1) % ring).ravel()
    quads = np.stack([a, b, a + ring, b, b + ring, a + ring], axis=1)
    return quads.reshape(-1, 3).astype(np.int32)


def box(
    center: tuple[float, float, float],
    size: tuple[float, float, float],
    material: Material,
    reflectivity: float | None = None,
) -> Mesh:
    """Return an axis-aligned cuboid (metres)."""
    corners = np.array([[i, j, k] for i in (-0.5, 0.5) for j in (-0.5, 0.5) for k in (-0.5, 0.5)])
    faces = [
        [0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1],
        [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3],
    ]  # fmt: skip
    return uniform_mesh(corners * np.array(size) + np.array(center), faces, material, reflectivity)


def _axes_along(
    direction: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return two unit vectors perpendicular to ``direction`` and to each other."""
    helper = np.array([1.0, 0.0, 0.0]) if abs(direction[0]) < 0.9 else np.array([0.0, 1.0, 0.0])
    first = np.cross(direction, helper)
    first /= np.linalg.norm(first)
    return first, np.cross(direction, first)


def revolved(
    start: npt.ArrayLike,
    end: npt.ArrayLike,
    profile: Sequence[tuple[float, float]],
    material: Material,
    reflectivity: float | None = None,
    *,
    sides: int = 8,
) -> Mesh:
    """Return a solid of revolution about the line from ``start`` to ``end``.

    Args:
        start, end: ends of the axis, metres.
        profile: (offset along the axis from ``start``, radius) pairs, metres, in order.
        material, reflectivity: of the surface.
        sides: number of faces around the axis.
    """
    origin = np.asarray(start, np.float64)
    direction = np.asarray(end, np.float64) - origin
    direction = direction / max(float(np.linalg.norm(direction)), 1e-9)
    first, second = _axes_along(direction)
    angles = np.arange(sides) * (2 * np.pi / sides)
    circle = np.cos(angles)[:, None] * first + np.sin(angles)[:, None] * second
    rings = [origin + offset * direction + radius * circle for offset, radius in profile]
    return uniform_mesh(np.concatenate(rings), lofted_triangles(len(profile), sides), material, reflectivity)


def capsule(
    start: npt.ArrayLike,
    end: npt.ArrayLike,
    radius: float,
    material: Material,
    reflectivity: float | None = None,
    *,
    end_radius: float | None = None,
    sides: int = 8,
) -> Mesh:
    """Return a limb: two half spheres around ``start`` and ``end`` and the skin between them (metres)."""
    last = radius if end_radius is None else end_radius
    length = float(np.linalg.norm(np.asarray(end, np.float64) - np.asarray(start, np.float64)))
    half, tip = 0.7071, 1e-4
    profile = [(-radius, tip), (-half * radius, half * radius), (0.0, radius)]
    profile += [(length, last), (length + half * last, half * last), (length + last, tip)]
    return revolved(start, end, profile, material, reflectivity, sides=sides)


def cylinder(
    start: npt.ArrayLike,
    end: npt.ArrayLike,
    radius: float,
    material: Material,
    reflectivity: float | None = None,
    *,
    end_radius: float | None = None,
    sides: int = 8,
) -> Mesh:
    """Return a closed cylinder or truncated cone (metres)."""
    last = radius if end_radius is None else end_radius
    length = float(np.linalg.norm(np.asarray(end, np.float64) - np.asarray(start, np.float64)))
    profile = [(0.0, 1e-4), (0.0, radius), (length, last), (length, 1e-4)]
    return revolved(start, end, profile, material, reflectivity, sides=sides)


def tubes(
    points: Sequence[tuple[float, float, float]],
    radius: float,
    material: Material,
    reflectivity: float | None = None,
) -> Mesh:
    """Return a bent tube through ``points`` (metres); three sides suffice for thin objects."""
    parts = [cylinder(a, b, radius, material, reflectivity, sides=3) for a, b in itertools.pairwise(points)]
    return merge_meshes(parts)


def leaves(
    centers: FloatArray, size_m: float, rng: np.random.Generator, reflectivity: float | None = None
) -> Mesh:
    """Return randomly oriented triangles at (L, 3) ``centers``: foliage that rays can pass through."""
    offsets = rng.normal(0.0, 0.45 * size_m, (len(centers), 3, 3)).astype(np.float32)
    vertices = (centers[:, None] + offsets).reshape(-1, 3)
    mesh = uniform_mesh(vertices, np.arange(len(vertices)), Material.LEAF, reflectivity)
    spread = rng.normal(1.0, 0.25, len(mesh)).astype(np.float32)
    return Mesh(mesh.vertices, mesh.triangles, mesh.materials, np.clip(mesh.reflectivity * spread, 0, 1))


def sample_size(
    rng: np.random.Generator, mean_m: tuple[float, float, float], sigma_m: tuple[float, float, float]
) -> tuple[float, float, float]:
    """Return a random length, width and height within two standard deviations of the mean."""
    offset = np.clip(rng.standard_normal(3), -2, 2) * np.array(sigma_m)
    length, width, height = np.array(mean_m) + offset
    return float(length), float(width), float(height)
