"""Ray casting against triangle meshes, by Open3D (Embree)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perception.simulate.mesh import FloatArray, Mesh


class Hits(NamedTuple):
    """First intersections.

    Attributes:
        distance_m: (R,) float32, infinite without a hit.
        triangle: (R,) int64 row of the mesh's triangles, -1 without a hit.
        normal: (R, 3) float32 unit normal of the triangle.
    """

    distance_m: FloatArray
    triangle: npt.NDArray[np.int64]
    normal: FloatArray


def require_open3d() -> Any:
    """Import Open3D on first use.

    Raises:
        ImportError: Open3D is missing or does not load; the message names the package to install.
    """
    try:
        import open3d.core
        import open3d.t
    except ImportError as error:
        raise ImportError(
            f"the LiDAR simulator needs Open3D, whose import failed with: {error}. Run"
            " pip install 'sparsight[simulate]' (on Debian also: apt-get install libusb-1.0-0 libgomp1)"
        ) from error
    return open3d


class RayCaster:
    """An acceleration structure over one mesh.

    Args:
        mesh: in the frame of the rays; may be empty.
        threads: CPU threads, 0 for all.

    Raises:
        ImportError: Open3D is missing.
    """

    def __init__(self, mesh: Mesh, *, threads: int = 0) -> None:
        open3d = require_open3d()
        self._tensor = open3d.core.Tensor
        self._threads = threads
        self._scene: Any = None
        if len(mesh):
            self._scene = open3d.t.geometry.RaycastingScene(nthreads=threads)
            self._scene.add_triangles(
                self._tensor(np.ascontiguousarray(mesh.vertices)),
                self._tensor(mesh.triangles.astype(np.uint32)),
            )

    def cast(self, rays: FloatArray) -> Hits:
        """Return the first hit of (R, 6) float32 rays: origin (metres) and unit direction."""
        if self._scene is None or not len(rays):
            count = len(rays)
            return Hits(
                np.full(count, np.inf, np.float32),
                np.full(count, -1, np.int64),
                np.zeros((count, 3), np.float32),
            )
        answer = self._scene.cast_rays(self._tensor(np.ascontiguousarray(rays)), nthreads=self._threads)
        distance: FloatArray = answer["t_hit"].numpy()
        triangle = answer["primitive_ids"].numpy().astype(np.int64)
        triangle[~np.isfinite(distance)] = -1
        return Hits(distance, triangle, answer["primitive_normals"].numpy())
