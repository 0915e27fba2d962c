"""First surface that each ray of a scan meets, including windows."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from perception.simulate.mesh import FloatArray, IntArray, Mesh, merge_meshes
from perception.simulate.raycast import Hits, RayCaster
from perception.simulate.scene import Scene
from perception.simulate.surface import Material

#: Share of the pulses that pass through a window, and their remaining strength.
_TRANSMITTED_SHARE, _TRANSMITTED_STRENGTH = 0.3, 0.5
#: Distance behind the pane at which transmitted rays start.
_BEHIND_PANE_M = 0.02


class RayHits(NamedTuple):
    """Surfaces that rays meet.

    Attributes:
        distance_m: (R,) float32, infinite without a hit.
        owner: (R,) int32 row of the object, -1 for scenery and for no hit.
        materials: (R,) uint8 values of ``Material``; undefined without a hit.
        reflectivity: (R,) float32 in [0, 1].
        incidence_cosine: (R,) float32 in [0, 1], 1 at normal incidence.
    """

    distance_m: FloatArray
    owner: IntArray
    materials: npt.NDArray[np.uint8]
    reflectivity: FloatArray
    incidence_cosine: FloatArray


Values = TypeVar("Values", FloatArray, IntArray, npt.NDArray[np.uint8])


def _replaced(values: Values, rows: npt.NDArray[np.int64], new: Values) -> Values:
    result = values.copy()
    result[rows] = new
    return result


class SceneView:
    """A scene at one moment.

    Args:
        scene: ground and scenery.
        static: ray caster over ``scene.static``, built once per scene.
        meshes: the objects at this moment in world coordinates.
    """

    def __init__(self, scene: Scene, static: RayCaster, meshes: list[Mesh]) -> None:
        self._scene = scene
        self._static = static
        self._objects = merge_meshes(meshes)
        self._dynamic = RayCaster(self._objects)
        self._owner = np.repeat(np.arange(len(meshes), dtype=np.int32), [len(mesh) for mesh in meshes])

    def look(self, rays: FloatArray) -> RayHits:
        """Return the first surface on each of (R, 6) float32 rays: origins (metres) and unit directions in
        the world.
        """
        static, dynamic = self._static.cast(rays), self._dynamic.cast(rays)
        on_object = dynamic.distance_m < static.distance_m
        owner = np.full(len(rays), -1, np.int32)
        owner[on_object] = self._owner[dynamic.triangle[on_object]]
        materials, reflectivity = self._scenery(rays, static)
        rows = dynamic.triangle[on_object]
        materials[on_object] = self._objects.materials[rows]
        reflectivity[on_object] = self._objects.reflectivity[rows]
        normal = np.where(on_object[:, None], dynamic.normal, static.normal)
        length = np.linalg.norm(normal, axis=1) + np.float32(1e-12)
        cosine = np.minimum(np.abs((normal * rays[:, 3:]).sum(1)) / length, np.float32(1.0))
        distance = np.minimum(static.distance_m, dynamic.distance_m)
        return RayHits(distance, owner, materials, reflectivity, cosine.astype(np.float32))

    def look_through(self, rays: FloatArray, first: RayHits, rng: np.random.Generator) -> RayHits:
        """Return ``first``, but let some of the rays through car windows to the surface behind."""
        panes = np.flatnonzero((first.materials == Material.GLASS) & (first.owner >= 0))
        panes = panes[rng.random(len(panes)) < _TRANSMITTED_SHARE]
        step = first.distance_m[panes] + np.float32(_BEHIND_PANE_M)
        onward = rays[panes].copy()
        onward[:, :3] += onward[:, 3:] * step[:, None]
        behind = self.look(onward)
        strength = behind.reflectivity * np.float32(_TRANSMITTED_STRENGTH)
        return RayHits(
            _replaced(first.distance_m, panes, behind.distance_m + step),
            _replaced(first.owner, panes, behind.owner),
            _replaced(first.materials, panes, behind.materials),
            _replaced(first.reflectivity, panes, strength),
            _replaced(first.incidence_cosine, panes, behind.incidence_cosine),
        )

    def _scenery(self, rays: FloatArray, static: Hits) -> tuple[npt.NDArray[np.uint8], FloatArray]:
        """Return (R,) materials and (R,) reflectivities of ground and scenery at the hits."""
        scenery = self._scene.static
        triangle = np.maximum(static.triangle, 0)
        materials, reflectivity = scenery.materials[triangle], scenery.reflectivity[triangle]
        ground = np.flatnonzero((static.triangle >= 0) & (triangle < self._scene.ground_triangles))
        places = rays[ground, :3] + rays[ground, 3:] * static.distance_m[ground, None]
        materials[ground], reflectivity[ground] = self._scene.ground.surface(places)
        return materials, reflectivity
