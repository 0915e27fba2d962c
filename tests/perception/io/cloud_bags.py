"""Bags of point clouds that tests write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


def write_bag(path: Path, streets: list[np.ndarray], *, broken: int | None = None, topics: int = 1) -> Path:
    """A folder with metadata.yaml; one of its clouds may lack half of its bytes."""
    rosbag2 = pytest.importorskip("rosbags.rosbag2")
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    types = store.types
    names = ("x", "y", "z", "intensity")
    fields = [types["sensor_msgs/msg/PointField"](name, 4 * k, 7, 1) for k, name in enumerate(names)]
    kind = "sensor_msgs/msg/PointCloud2"
    with rosbag2.Writer(path, version=9) as writer:
        connections = [
            writer.add_connection(f"/points{k or ''}", kind, typestore=store) for k in range(topics)
        ]
        for k, points in enumerate(streets):
            stamp = types["builtin_interfaces/msg/Time"](100 + k, 5)
            header = types["std_msgs/msg/Header"](stamp, "lidar")
            data = points.astype("<f4").view(np.uint8).reshape(-1)
            data = data[: len(data) // 2] if k == broken else data
            count = len(points)
            message = types[kind](header, 1, count, fields, False, 16, 16 * count, data, True)
            for connection in connections:
                writer.write(connection, k, store.serialize_cdr(message, kind))
    return path
