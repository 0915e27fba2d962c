"""Simulated LiDAR: ray-cast street scenes with exact boxes, spinning sensors, drives and KITTI export.

Ray casting needs Open3D (``pip install 'sparsight[simulate]'``), which is imported on first use.

    scan = simulate_scan(seed=7, sensor=SensorModel.preset("32"))
    scan.cloud.points, scan.boxes.boxes, scan.boxes.labels, scan.occlusion_level
"""

from perception.simulate.export import export_kitti
from perception.simulate.further import FURTHER, NUSCENES_DENSITY
from perception.simulate.ground import Spot, Street
from perception.simulate.scan import Scanner, SimulatedScan, SweepMotion, simulate_scan
from perception.simulate.scene import Scene, SceneConfig, build_scene
from perception.simulate.sensor import SensorModel
from perception.simulate.sequence import scan_along, simulate_sequence
from perception.simulate.traffic import SceneObject

__all__ = [
    "FURTHER",
    "NUSCENES_DENSITY",
    "Scanner",
    "Scene",
    "SceneConfig",
    "SceneObject",
    "SensorModel",
    "SimulatedScan",
    "Spot",
    "Street",
    "SweepMotion",
    "build_scene",
    "export_kitti",
    "scan_along",
    "simulate_scan",
    "simulate_sequence",
]
