"""The ten classes of nuScenes' detection task, and the label categories of each.

Source: the nuScenes detection task (Caesar et al., CVPR 2020, https://www.nuscenes.org/object-detection).
Other categories are not evaluated.
"""

from __future__ import annotations

CLASSES = (
    "car",
    "truck",
    "bus",
    "trailer",
    "construction_vehicle",
    "pedestrian",
    "motorcycle",
    "bicycle",
    "traffic_cone",
    "barrier",
)

CLASS_OF_CATEGORY = {
    "vehicle.car": "car",
    "vehicle.truck": "truck",
    "vehicle.bus.bendy": "bus",
    "vehicle.bus.rigid": "bus",
    "vehicle.trailer": "trailer",
    "vehicle.construction": "construction_vehicle",
    "human.pedestrian.adult": "pedestrian",
    "human.pedestrian.child": "pedestrian",
    "human.pedestrian.construction_worker": "pedestrian",
    "human.pedestrian.police_officer": "pedestrian",
    "vehicle.motorcycle": "motorcycle",
    "vehicle.bicycle": "bicycle",
    "movable_object.trafficcone": "traffic_cone",
    "movable_object.barrier": "barrier",
}

#: Category of places where bicycles and motorcycles are not evaluated.
BICYCLE_RACK = "static_object.bicycle_rack"
