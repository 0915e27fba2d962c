"""Further object classes on the streets of a scene, and their label names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

from perception.simulate.ground import Street
from perception.simulate.mesh import Mesh
from perception.simulate.objects.heavy import (
    sample_bus,
    sample_construction_vehicle,
    sample_trailer,
    sample_truck,
)
from perception.simulate.objects.small import sample_barrier, sample_cone, sample_motorcycle
from perception.simulate.traffic import SceneObject, TrafficBuilder

#: Naming schemes of labels.
Naming = Literal["kitti", "nuscenes"]

#: Kind of object to its mesh function, in placement order, largest first.
FURTHER: Final[Mapping[str, Callable[[np.random.Generator], Mesh]]] = MappingProxyType(
    {
        "bus": sample_bus,
        "trailer": sample_trailer,
        "truck": sample_truck,
        "construction_vehicle": sample_construction_vehicle,
        "motorcycle": sample_motorcycle,
        "barrier": sample_barrier,
        "traffic_cone": sample_cone,
    }
)
#: Mean of each kind per 100 m of street, for scenes with the ten classes of nuScenes.
NUSCENES_DENSITY: Final[Mapping[str, float]] = MappingProxyType(
    {
        "bus": 0.25,
        "trailer": 0.25,
        "truck": 0.8,
        "construction_vehicle": 0.3,
        "motorcycle": 0.6,
        "barrier": 2.0,
        "traffic_cone": 2.0,
    }
)
_NAMES: Final[dict[Naming, dict[str, str]]] = {
    "kitti": {"truck": "Truck"} | {name: "Misc" for name in FURTHER if name != "truck"},
    "nuscenes": {"Car": "car", "Van": "car", "Pedestrian": "pedestrian", "Cyclist": "bicycle"},
}


def add_further(traffic: TrafficBuilder, per_100m: Mapping[str, float], speed_m_s: float) -> None:
    """Place further kinds of objects where there is room.

    Args:
        traffic: streets and placed objects; updated.
        per_100m: mean of each kind per 100 m of street.
        speed_m_s: of moving vehicles.
    """
    layout, rng = traffic.layout, traffic.rng
    for kind, sample in FURTHER.items():
        for street in layout.ground.streets:
            for _ in range(int(rng.poisson(per_100m.get(kind, 0.0) * layout.extent_m / 50.0))):
                along = float(rng.uniform(-layout.extent_m, layout.extent_m))
                if kind in ("barrier", "traffic_cone"):
                    _row(traffic, street, kind, along)
                    continue
                drives = street.axis == "u" and kind in ("truck", "bus", "motorcycle") and rng.random() < 0.5
                mesh = sample(rng)
                if drives:
                    traffic.place(kind, mesh, traffic.lane_spot(street, along), speed_m_s, 1.0)
                    continue
                side = float(rng.choice([-1.0, 1.0]))
                width = float(mesh.vertices[:, 1].max() - mesh.vertices[:, 1].min())
                lateral = side * (street.half_width_m - width / 2 - 0.1)
                heading = (0.0 if side < 0 else np.pi) + float(rng.normal(0, 0.03))
                traffic.place(kind, mesh, street.spot(along, lateral, heading), 0.0, 0.3)


def _row(traffic: TrafficBuilder, street: Street, kind: str, along_m: float) -> None:
    """Place a row of barriers or cones along the street, as around a construction site."""
    rng = traffic.rng
    lateral = float(rng.choice([-1.0, 1.0])) * (street.half_width_m - float(rng.uniform(0.4, 1.2)))
    step = float(rng.uniform(2.7, 3.2)) if kind == "barrier" else float(rng.uniform(1.5, 5.0))
    for number in range(int(rng.integers(2, 7))):
        # Barriers extend across their heading, so this one lies along the street.
        heading = np.pi / 2 + float(rng.normal(0, 0.08))
        spot = street.spot(along_m + number * step, lateral + float(rng.normal(0, 0.05)), heading)
        traffic.place(kind, FURTHER[kind](rng), spot, 0.0, 0.05)


def renamed(objects: tuple[SceneObject, ...], naming: Naming) -> tuple[SceneObject, ...]:
    """Return the objects with the label names of a data set."""
    names = _NAMES[naming]
    return tuple(replace(item, label=names[item.label]) if item.label in names else item for item in objects)
