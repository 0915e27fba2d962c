"""Cars and vans as lofted bodies: bonnet, windscreen, tapered greenhouse, wheels, lamps and plates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from perception.simulate.mesh import Mesh, box, cylinder, lofted_triangles, merge_meshes, sample_size
from perception.simulate.surface import SURFACES, Material

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class VehicleBody:
    """A body shape; fractions are of the vehicle's length (0 at the rear) and height (0 at the ground).

    Attributes:
        label: class name in the ground truth.
        share: relative frequency in traffic.
        size_m, size_sigma_m: mean and standard deviation of length, width, height.
        top: side profile of the top line, (length fraction, height fraction) from rear to front.
        belt: height fraction of the lower edge of the windows.
        glazed: length fractions of the side windows' ends.
        rear_glass: True if steep faces behind ``glazed`` are glass too.
        roof_taper: reduction of the roof's width relative to the belt, as a fraction of the width.
        plan_taper: reduction of the width at the ends relative to the middle, as a fraction of the width.
        axles: length fractions of the rear and front axle.
        wheel_radius_m: radius of the tyres.
    """

    label: str
    share: float
    size_m: tuple[float, float, float]
    size_sigma_m: tuple[float, float, float]
    top: tuple[tuple[float, float], ...]
    belt: float
    glazed: tuple[float, float]
    rear_glass: bool = True
    roof_taper: float = 0.22
    plan_taper: float = 0.16
    axles: tuple[float, float] = (0.19, 0.81)
    wheel_radius_m: float = 0.31


BODIES: Final[dict[str, VehicleBody]] = {
    "sedan": VehicleBody(
        "Car", 0.26, (4.15, 1.67, 1.45), (0.25, 0.06, 0.05),
        ((0.0, 0.50), (0.015, 0.66), (0.14, 0.69), (0.28, 0.96), (0.42, 1.0), (0.54, 0.97), (0.70, 0.68),
         (0.86, 0.62), (0.97, 0.53), (1.0, 0.40)),
        0.65, (0.20, 0.68),
    ),
    "hatchback": VehicleBody(
        "Car", 0.38, (3.60, 1.59, 1.49), (0.24, 0.06, 0.06),
        ((0.0, 0.46), (0.015, 0.62), (0.09, 0.90), (0.16, 0.975), (0.35, 1.0), (0.52, 0.97), (0.71, 0.67),
         (0.87, 0.61), (0.97, 0.50), (1.0, 0.38)),
        0.62, (0.10, 0.70), axles=(0.17, 0.82), wheel_radius_m=0.29,
    ),
    "estate": VehicleBody(
        "Car", 0.16, (4.12, 1.66, 1.50), (0.25, 0.06, 0.05),
        ((0.0, 0.48), (0.012, 0.64), (0.07, 0.92), (0.13, 0.985), (0.40, 1.0), (0.55, 0.97), (0.72, 0.67),
         (0.87, 0.61), (0.97, 0.52), (1.0, 0.40)),
        0.64, (0.05, 0.71),
    ),
    "suv": VehicleBody(
        "Car", 0.12, (4.12, 1.74, 1.68), (0.25, 0.07, 0.08),
        ((0.0, 0.44), (0.012, 0.62), (0.06, 0.90), (0.12, 0.98), (0.40, 1.0), (0.57, 0.97), (0.70, 0.70),
         (0.88, 0.65), (0.97, 0.57), (1.0, 0.42)),
        0.64, (0.06, 0.69), roof_taper=0.16, plan_taper=0.12, wheel_radius_m=0.35,
    ),
    "minivan": VehicleBody(
        "Car", 0.08, (4.05, 1.71, 1.68), (0.2, 0.06, 0.07),
        ((0.0, 0.42), (0.012, 0.60), (0.05, 0.92), (0.11, 0.985), (0.40, 1.0), (0.60, 0.96), (0.82, 0.64),
         (0.95, 0.52), (1.0, 0.38)),
        0.60, (0.05, 0.80), roof_taper=0.17, plan_taper=0.14,
    ),
    "pickup": VehicleBody(
        "Car", 0.02, (4.9, 1.78, 1.74), (0.2, 0.06, 0.08),
        ((0.0, 0.40), (0.008, 0.60), (0.36, 0.61), (0.40, 0.94), (0.47, 1.0), (0.56, 0.98), (0.69, 0.66),
         (0.93, 0.62), (0.985, 0.52), (1.0, 0.40)),
        0.62, (0.39, 0.69), roof_taper=0.18, plan_taper=0.10, wheel_radius_m=0.37,
    ),
    "van": VehicleBody(
        "Van", 0.05, (5.1, 1.92, 2.15), (0.45, 0.08, 0.2),
        ((0.0, 0.36), (0.006, 0.60), (0.015, 0.93), (0.04, 0.985), (0.40, 1.0), (0.70, 0.98), (0.76, 0.93),
         (0.88, 0.57), (0.97, 0.46), (1.0, 0.33)),
        0.56, (0.66, 0.86), rear_glass=False, roof_taper=0.10, plan_taper=0.08, wheel_radius_m=0.33,
    ),
    "minibus": VehicleBody(
        "Van", 0.03, (4.8, 1.86, 1.95), (0.3, 0.06, 0.1),
        ((0.0, 0.38), (0.008, 0.58), (0.03, 0.92), (0.07, 0.985), (0.40, 1.0), (0.68, 0.975), (0.86, 0.59),
         (0.96, 0.49), (1.0, 0.35)),
        0.56, (0.04, 0.84), roof_taper=0.12, plan_taper=0.10, wheel_radius_m=0.33,
    ),
}  # fmt: skip

#: Vertices of a body's cross-section, and its edges that are side windows and roof.
_RING: Final = 9
_WINDOW_EDGES: Final = (2, 5)
_ROOF_EDGES: Final = (3, 4)


def sample_vehicle(rng: np.random.Generator) -> tuple[str, Mesh]:
    """Return class name and mesh of a vehicle with random size and paint, and a body by traffic share.

    The origin is on the ground under the centre, x forward.
    """
    bodies = list(BODIES.values())
    shares = np.array([body.share for body in bodies])
    shape = bodies[int(rng.choice(len(bodies), p=shares / shares.sum()))]
    # Dark, metallic and light paint; most cars appear dim in scans.
    reflectivity = float(
        rng.choice([0.02, 0.05, 0.2, 0.38], p=[0.3, 0.2, 0.25, 0.25]) * rng.uniform(0.7, 1.3)
    )
    return shape.label, vehicle_mesh(shape, sample_size(rng, shape.size_m, shape.size_sigma_m), reflectivity)


def vehicle_mesh(body: VehicleBody, size_m: tuple[float, float, float], reflectivity: float) -> Mesh:
    """Return the mesh of one vehicle.

    Args:
        body: shape.
        size_m: length, width, height; the mesh fills them exactly.
        reflectivity: of the paint, in [0, 1].

    Returns:
        Mesh with its origin on the ground under the centre, x forward.
    """
    length, width, height = size_m
    parts = [_shell(body, size_m, reflectivity), *_wheels(body, size_m), *_lamps_and_plates(body, size_m)]
    return merge_meshes(parts).resized(length, width, height)


def _stations(body: VehicleBody) -> FloatArray:
    """Return length fractions of the cross-sections: profile corners, window posts and an even spread."""
    posts = np.linspace(body.glazed[0], body.glazed[1], 3)
    values = np.concatenate(
        [np.array([s for s, _ in body.top]), np.linspace(0, 1, 13), posts - 0.012, posts + 0.012]
    )
    values = np.unique(np.round(np.clip(values, 0, 1), 4))
    keep = np.concatenate([[True], np.diff(values) > 0.004])
    keep[-1] = True
    result: FloatArray = values[keep]
    return result


def _shell(body: VehicleBody, size_m: tuple[float, float, float], reflectivity: float) -> Mesh:
    """Return the skin of the body, closed at both ends."""
    stations = _stations(body)
    rings, glass_height = _cross_sections(body, stations, size_m)
    triangles = lofted_triangles(len(stations), _RING)
    materials = np.full(len(triangles), int(Material.PAINT), np.uint8)
    is_glass = _glass_quads(body, stations, rings, glass_height)
    materials[np.repeat(is_glass.ravel(), 2)] = int(Material.GLASS)
    caps = [
        [first, first + k, first + k + 1]
        for first in (0, (len(stations) - 1) * _RING)
        for k in range(1, _RING - 1)
    ]
    materials = np.concatenate([materials, np.full(len(caps), int(Material.PAINT), np.uint8)])
    values = np.where(materials == Material.GLASS, SURFACES[Material.GLASS].reflectivity, reflectivity)
    return Mesh(
        rings.reshape(-1, 3).astype(np.float32),
        np.concatenate([triangles, np.array(caps, np.int32)]),
        materials,
        values.astype(np.float32),
    )


def _cross_sections(
    body: VehicleBody, stations: FloatArray, size_m: tuple[float, float, float]
) -> tuple[FloatArray, FloatArray]:
    """Return (stations, 9, 3) vertices, and (stations,) heights of the top above the belt, metres."""
    length, width, height = size_m
    fractions, heights = np.array(body.top).T
    top = np.interp(stations, fractions, heights) * height
    belt = np.minimum(top, (body.belt + 0.03 * (0.5 - stations)) * height)
    clearance = 0.19 + 0.16 * np.abs(2 * stations - 1) ** 6
    half = width / 2 * (1 - body.plan_taper * np.abs(2 * stations - 1) ** 5)
    roof = half * (0.97 - body.roof_taper * (top - belt) / ((1 - body.belt) * height))
    side = clearance + 0.5 * (belt - clearance)
    x = (stations - 0.5) * length
    left = [(0.90 * half, clearance), (half, side), (0.97 * half, belt), (roof, top)]
    crown = (np.zeros_like(x), top + 0.02)
    ring = [*left, crown, *[(-y, z) for y, z in reversed(left)]]
    return np.stack([np.stack([x, y, z], axis=1) for y, z in ring], axis=1), top - belt


def _glass_quads(
    body: VehicleBody, stations: FloatArray, rings: FloatArray, glass_height: FloatArray
) -> npt.NDArray[np.bool_]:
    """Return a (stations - 1, 9) mask of the skin's quads that are windows."""
    middle = (stations[1:] + stations[:-1]) / 2
    tall = (glass_height[1:] + glass_height[:-1]) / 2
    first, last = body.glazed
    posts = np.linspace(first, last, 3)
    on_post = (np.abs(middle[:, None] - posts) < 0.013).any(1)
    glass = np.zeros((len(middle), _RING), bool)
    inside = (middle > first) & (middle < last)
    glass[:, _WINDOW_EDGES] = (inside & ~on_post & (tall > 0.12))[:, None]
    rise = np.abs(np.diff(rings[:, 4, 2]) / np.diff(rings[:, 4, 0]))
    steep = (rise > 0.3) & (tall > 0.05) & (inside if not body.rear_glass else middle < last + 0.03)
    glass[:, _ROOF_EDGES] = steep[:, None]
    return glass


def _wheels(body: VehicleBody, size_m: tuple[float, float, float]) -> list[Mesh]:
    length, width, _ = size_m
    radius = body.wheel_radius_m
    parts = []
    for axle in body.axles:
        x = (axle - 0.5) * length
        for side in (-1.0, 1.0):
            inner, outer = side * (width / 2 - 0.24), side * (width / 2 - 0.015)
            parts.append(cylinder((x, inner, radius), (x, outer, radius), radius, Material.RUBBER, sides=14))
            rim = side * (width / 2 - 0.01)
            parts.append(
                cylinder((x, outer, radius), (x, rim, radius), 0.66 * radius, Material.METAL, sides=10)
            )
    return parts


def _lamps_and_plates(body: VehicleBody, size_m: tuple[float, float, float]) -> list[Mesh]:
    """Return retro-reflecting plates and lamps: the bright spots of a car's scan."""
    length, width, height = size_m
    ends = ((-1.0, body.belt - 0.17, 0.16), (1.0, 0.30, 0.10))
    parts = []
    for side, plate, lamp_height in ends:
        x = side * (length / 2 - 0.005)
        parts.append(box((x, 0, plate * height), (0.03, 0.5, 0.11), Material.REFLECTOR))
        for y in (-0.36 * width, 0.36 * width):
            z = (body.belt - 0.12 if side < 0 else 0.44) * height
            size = (0.10, 0.18, lamp_height)
            inset = side * (length / 2 - 0.045)
            parts.append(box((inset, y, z), size, Material.REFLECTOR, 0.55))
    return parts
