"""Processes of others in tests of ROS 2: a router, and nodes that the library zenoh-ros2-sdk makes.

    python ros2_nodes.py router PORT
    python ros2_nodes.py talk PORT TOPIC HZ [FILE.npy ...]
    python ros2_nodes.py listen PORT NAMESPACE

The library is another program's idea of rmw_zenoh: what it hears of us, and we of it, is agreed by two.
Hashes of types are those that ROS publishes; definitions are given, as the library would fetch them.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from typing import Any

import numpy as np

HASHES = {
    kind: f"RIHS01_{number}"
    for kind, number in (
        (
            "sensor_msgs/msg/PointCloud2",
            "9198cabf7da3796ae6fe19c4cb3bdd3525492988c70522628af5daa124bae2b5",
        ),
        (
            "vision_msgs/msg/Detection3DArray",
            "793f5eab9595ac1c0da07873cc859db42eae51f0ee76056db8562515d830e018",
        ),
        (
            "visualization_msgs/msg/MarkerArray",
            "86cb8800b6fb05b5eff1abd7a56f62a5641d3ae9a1c29e78e67e704f1d067dcf",
        ),
    )
}
#: The messages of vision_msgs 4 as its repository has them, without comments.
VISION = {
    "ObjectHypothesis": "string class_id\nfloat64 score\n",
    "ObjectHypothesisWithPose": "ObjectHypothesis hypothesis\ngeometry_msgs/PoseWithCovariance pose\n",
    "BoundingBox3D": "geometry_msgs/Pose center\ngeometry_msgs/Vector3 size\n",
    "Detection3D": "std_msgs/Header header\nObjectHypothesisWithPose[] results\n"
    "BoundingBox3D bbox\nstring id\n",
    "Detection3DArray": "std_msgs/Header header\nDetection3D[] detections\n",
}


def router(port: int) -> None:
    """What ``rmw_zenohd`` is: a session of Zenoh in the mode of a router."""
    import zenoh

    config = zenoh.Config()
    config.insert_json5("mode", '"router"')
    config.insert_json5("listen/endpoints", f'["tcp/127.0.0.1:{port}"]')
    config.insert_json5("scouting/multicast/enabled", "false")
    with zenoh.open(config):
        print("ready", flush=True)
        while True:
            time.sleep(1)


def _known(port: int) -> Any:
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore
    from zenoh_ros2_sdk.session import ZenohSession

    session = ZenohSession.get_instance("127.0.0.1", port)
    session.store = get_typestore(Stores.ROS2_JAZZY)
    for name, definition in VISION.items():
        session.store.register(get_types_from_msg(definition, f"vision_msgs/msg/{name}"))
    session._registered_types.update({kind: kind for kind in HASHES})
    return session.store


def talk(port: int, topic: str, hz: float, files: list[str]) -> None:
    """Publish clouds in turn, x, y, z, intensity as float32; without files, what is no cloud."""
    from zenoh_ros2_sdk import ROS2Publisher

    types = _known(port).types
    kind = "sensor_msgs/msg/PointCloud2"
    publisher = ROS2Publisher(topic, kind, type_hash=HASHES[kind], router_ip="127.0.0.1", router_port=port)
    fields = [
        types["sensor_msgs/msg/PointField"](name, 4 * k, 7, 1)
        for k, name in enumerate(("x", "y", "z", "intensity"))
    ]
    clouds = [np.load(file) for file in files]
    print("ready", flush=True)
    for number in itertools.count():
        time_ns = time.time_ns()
        stamp = types["builtin_interfaces/msg/Time"](*divmod(time_ns, 10**9))
        points = clouds[number % len(clouds)].astype("<f4")
        publisher.publish(
            header=types["std_msgs/msg/Header"](stamp, "velodyne"), height=1, width=len(points),
            fields=fields, is_bigendian=False, point_step=16, row_step=16 * len(points),
            data=np.frombuffer(points.tobytes(), np.uint8), is_dense=True,
        )  # fmt: skip
        time.sleep(1 / hz)


def listen(port: int, namespace: str) -> None:
    """A line of JSON for each message of boxes and of markers."""
    from zenoh_ros2_sdk import ROS2Subscriber

    _known(port)

    def detections(message: Any) -> None:
        boxes = []
        for one in message.detections:
            centre, turn, size = one.bbox.center.position, one.bbox.center.orientation, one.bbox.size
            hypothesis = one.results[0].hypothesis
            told = {"id": one.id, "class": hypothesis.class_id, "score": hypothesis.score}
            told |= {"centre": [centre.x, centre.y, centre.z], "size": [size.x, size.y, size.z]}
            boxes.append(told | {"turn": [turn.z, turn.w]})
        stamp = message.header.stamp
        time_ns = stamp.sec * 10**9 + stamp.nanosec
        about = {"frame": message.header.frame_id, "time_ns": time_ns, "boxes": boxes}
        print(json.dumps(about), flush=True)

    def markers(message: Any) -> None:
        told = [[one.action, one.id, one.pose.position.x, one.color.a] for one in message.markers]
        print(json.dumps({"markers": told}), flush=True)

    for name, kind, take in (
        ("detections", "vision_msgs/msg/Detection3DArray", detections),
        ("markers", "visualization_msgs/msg/MarkerArray", markers),
    ):
        ROS2Subscriber(
            f"{namespace}/{name}", kind, take, type_hash=HASHES[kind], router_ip="127.0.0.1", router_port=port
        )
    print("ready", flush=True)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    what, where, *rest = sys.argv[1:]
    if what == "router":
        router(int(where))
    elif what == "talk":
        talk(int(where), rest[0], float(rest[1]), rest[2:])
    else:
        listen(int(where), rest[0])
