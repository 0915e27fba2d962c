"""Import and export memories: JSONL and Parquet both ways, GeoJSON out, detections in."""

from memory.errors import DataError
from memory.exchange.detections import DetectionOptions, view_from_frame
from memory.exchange.exporting import export_memories
from memory.exchange.formats import open_source
from memory.exchange.geojson import Origin
from memory.exchange.importing import ImportReport, import_source
from memory.exchange.poses import Pose, Poses, read_poses

__all__ = [
    "DataError",
    "DetectionOptions",
    "ImportReport",
    "Origin",
    "Pose",
    "Poses",
    "export_memories",
    "import_source",
    "open_source",
    "read_poses",
    "view_from_frame",
]
