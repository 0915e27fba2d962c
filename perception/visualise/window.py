"""An Open3D window that shows points and boxes of a frame."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb

from perception.boxes import box_corners_3d
from perception.types import Boxes3D, Detections, PointCloud
from perception.visualise.palette import GROUND_TRUTH, class_colour
from perception.visualise.recording import height_shades
from perception.visualise.scene import DrawnBoxes, detected, finite_points, labelled

#: Corner pairs of the twelve edges, in the order of ``box_corners_3d``; then a cross on the front face.
_EDGES = np.array(
    [(corner, (corner + 1) % 4) for corner in range(4)]
    + [(corner + 4, (corner + 1) % 4 + 4) for corner in range(4)]
    + [(corner, corner + 4) for corner in range(4)]
    + [(0, 7), (3, 4)],
    dtype=np.int32,
)


def show_window(
    cloud: PointCloud,
    detections: Detections | None,
    *,
    ground_truth: Boxes3D | None = None,
    title: str = "Sparsight",
) -> None:
    """Open a window and wait until it is closed.

    Args:
        cloud: (N, 4) points, LiDAR frame.
        detections: boxes to draw in their class's colour.
        ground_truth: boxes to draw in white.
        title: of the window.

    Raises:
        ImportError: Open3D is missing.
        OSError: no display is available.
    """
    open3d = _import_open3d()
    window = open3d.visualization.Visualizer()
    # Without a display, Open3D may open an invisible window that nobody could close.
    if not _has_display() or not window.create_window(title, 1280, 800):
        raise OSError("no display available for the window; open the PNG and HTML files instead")
    for geometry in window_geometries(cloud, detections, ground_truth=ground_truth):
        window.add_geometry(geometry)
    window.get_render_option().background_color = np.array(to_rgb("#0b0f17"))
    window.get_render_option().point_size = 2.0
    window.run()
    window.destroy_window()


def window_geometries(
    cloud: PointCloud, detections: Detections | None, *, ground_truth: Boxes3D | None = None
) -> list[Any]:
    """Return the window's geometries: one Open3D ``PointCloud``, then one ``LineSet`` per box (true boxes
    first).

    Raises:
        ImportError: Open3D is missing.
    """
    open3d = _import_open3d()
    points = finite_points(cloud.points)
    drawn = open3d.geometry.PointCloud(open3d.utility.Vector3dVector(points[:, :3].astype(np.float64)))
    drawn.colors = open3d.utility.Vector3dVector(height_shades(points[:, 2]))
    return [drawn, *_line_sets(labelled(ground_truth)), *_line_sets(detected(detections))]


def _line_sets(boxes: DrawnBoxes) -> list[Any]:
    open3d = _import_open3d()
    made = []
    for box, label in zip(boxes.boxes, boxes.labels, strict=True):
        corners = np.asarray(box_corners_3d(box[None].astype(np.float64)))[0]
        lines = open3d.geometry.LineSet(
            open3d.utility.Vector3dVector(corners), open3d.utility.Vector2iVector(_EDGES)
        )
        colour = GROUND_TRUTH if boxes.scores is None else class_colour(label)
        lines.paint_uniform_color(to_rgb(colour.dark))
        made.append(lines)
    return made


def _has_display() -> bool:
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _import_open3d() -> Any:
    try:
        import open3d
    except ImportError as error:
        raise ImportError("the 3D window needs Open3D: pip install 'sparsight[viewers]'") from error
    return open3d
