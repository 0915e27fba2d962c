"""Terrain, streets and ground materials.

Scenes are laid out in street coordinates (u, v), in which all streets are straight and run along u or v. The
ground maps them to the world frame (x, y, z, metres, z up): ``x = u``, ``y = v + bend(u)``. z follows the
terrain, with a kerb at the edge of every road.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from perception.simulate.mesh import Mesh, lofted_triangles, uniform_mesh
from perception.simulate.surface import SURFACES, Material

FloatArray = npt.NDArray[np.float64]

#: Depth of a parking strip by kind, metres.
PARKING_DEPTH_M: Final = {"none": 0.0, "parallel": 2.1, "perpendicular": 4.9}


class Spot(NamedTuple):
    """A position in street coordinates: u, v in metres and the heading from +u in radians."""

    u: float
    v: float
    heading_rad: float


@dataclass(frozen=True)
class Street:
    """A straight street in street coordinates.

    Attributes:
        axis: direction it runs in.
        center_m: v of its centre line if it runs along u, else u.
        half_width_m: from the centre line to the kerb, including parking strips.
        parking: kind of parking on the left and right of the direction of ``axis``.
        sidewalk_m: width of the pavement beyond each kerb.
        marked: True if lanes are painted.
    """

    axis: Literal["u", "v"]
    center_m: float
    half_width_m: float
    parking: tuple[str, str] = ("none", "none")
    sidewalk_m: float = 2.0
    marked: bool = True

    @property
    def lanes_m(self) -> float:
        """Distance from the centre line to the parking strips."""
        return self.half_width_m - max(PARKING_DEPTH_M[kind] for kind in self.parking)

    def spot(self, along_m: float, lateral_m: float, heading_rad: float = 0.0) -> Spot:
        """Return the spot ``along_m`` down the street and ``lateral_m`` left of its centre line."""
        if self.axis == "u":
            return Spot(along_m, self.center_m + lateral_m, heading_rad)
        return Spot(self.center_m - lateral_m, along_m, heading_rad + np.pi / 2)

    def offset_m(self, u: FloatArray, v: FloatArray) -> FloatArray:
        """Return distances from the centre line."""
        return np.abs((v if self.axis == "u" else u) - self.center_m)


@dataclass(frozen=True, eq=False)
class Ground:
    """The terrain of one scene.

    Attributes:
        streets: all streets; they meet in junctions.
        waves: (K, 4) float64: amplitude (m), wave numbers along u and v (rad/m), phase of the terrain.
        slope: fall of the terrain along u and v.
        bend: amplitude (m), wave number (rad/m) and phase of the sideways bend of the streets along u.
        verge: material beyond the pavements.
        kerb_m: height of the pavements above the roads.
        asphalt: reflectivity of the roads.
    """

    streets: tuple[Street, ...]
    waves: FloatArray
    slope: tuple[float, float]
    bend: tuple[float, float, float]
    verge: Material = Material.GRASS
    kerb_m: float = 0.12
    asphalt: float = 0.27

    def bend_m(self, u: FloatArray) -> FloatArray:
        """Return the sideways shift of the streets at u, zero at u = 0."""
        amplitude, wave, phase = self.bend
        shift: FloatArray = amplitude * (np.sin(wave * u + phase) - np.sin(phase))
        return shift

    def on_road(self, u: FloatArray, v: FloatArray, margin_m: float = 0.0) -> npt.NDArray[np.bool_]:
        """Return a mask of positions between the kerbs of a street, widened by ``margin_m``."""
        road = np.zeros(np.broadcast(u, v).shape, bool)
        for street in self.streets:
            road |= street.offset_m(u, v) <= street.half_width_m + margin_m
        return road

    def terrain_m(self, u: FloatArray, v: FloatArray) -> FloatArray:
        """Return ground heights without kerbs."""
        height = self.slope[0] * u + self.slope[1] * v
        for amplitude, wave_u, wave_v, phase in self.waves:
            height = height + amplitude * np.sin(wave_u * u + wave_v * v + phase)
        return np.asarray(height, np.float64)

    def height_m(self, u: FloatArray, v: FloatArray) -> FloatArray:
        """Return ground heights with kerbs."""
        return self.terrain_m(u, v) + np.where(self.on_road(u, v, 0.01), 0.0, self.kerb_m)

    def pose(self, spot: Spot, lift_m: float = 0.0) -> FloatArray:
        """Return the 4x4 world_from_object pose of an upright object, ``lift_m`` above the ground."""
        u, v = np.array(spot.u), np.array(spot.v)
        amplitude, wave, phase = self.bend
        shear = amplitude * wave * np.cos(wave * u + phase)
        cosine, sine = np.cos(spot.heading_rad), np.sin(spot.heading_rad)
        yaw = np.arctan2(sine + shear * cosine, cosine)
        matrix = np.eye(4)
        matrix[:2, :2] = [[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]]
        matrix[:3, 3] = u, v + self.bend_m(u), self.height_m(u, v) + lift_m
        return matrix

    def mesh(self, extent_m: float, *, step_m: float = 2.5) -> Mesh:
        """Return the surface over [-extent, extent]² in world coordinates; kerbs are vertical to within 2
        cm.
        """
        base = np.arange(-extent_m, extent_m + step_m, step_m)
        lines_u, lines_v = [base], [base]
        for street in self.streets:
            edges = street.half_width_m + np.array([0.0, 0.02])
            lines = lines_v if street.axis == "u" else lines_u
            lines += [street.center_m + edges, street.center_m - edges]
        u, v = np.meshgrid(_unique(lines_u), _unique(lines_v), indexing="ij")
        vertices = np.stack([u, v + self.bend_m(u), self.height_m(u, v)], axis=-1)
        triangles = lofted_triangles(u.shape[0], u.shape[1], closed=False)
        return uniform_mesh(vertices.reshape(-1, 3), triangles, Material.ASPHALT)

    def surface(
        self, points: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
        """Return (N,) uint8 ``Material`` values and (N,) float32 reflectivities at (N, 3) world points."""
        u = points[:, 0].astype(np.float64)
        v = points[:, 1] - self.bend_m(u)
        material = np.full(len(u), int(self.verge), np.uint8)
        for street in self.streets:
            beyond = street.offset_m(u, v) - street.half_width_m
            material[beyond <= street.sidewalk_m] = int(Material.PAVEMENT)
        material[self.on_road(u, v)] = int(Material.ASPHALT)
        for street in self.streets:
            if street.marked:
                painted = _painted(street, u, v) & (material == int(Material.ASPHALT))
                material[painted] = int(Material.MARKING)
        table = np.array([SURFACES[m].reflectivity for m in Material], np.float64)
        table[Material.ASPHALT] = self.asphalt
        patches = 1.0 + 0.12 * np.sin(0.9 * u + 1.3 * np.sin(0.37 * v)) * np.sin(1.1 * v + 0.4 * u)
        return material, (table[material] * patches).astype(np.float32)


def _unique(lines: list[FloatArray]) -> FloatArray:
    return np.unique(np.round(np.concatenate(lines), 3))


def _painted(street: Street, u: FloatArray, v: FloatArray) -> npt.NDArray[np.bool_]:
    """Mark dashes on the centre line and a solid line along the parking strips."""
    offset = street.offset_m(u, v)
    along = u if street.axis == "u" else v
    dashes = (offset < 0.08) & (np.mod(along, 9.0) < 4.0)
    edge = np.abs(offset - (street.half_width_m - 0.35)) < 0.06
    return np.asarray(dashes | edge)
