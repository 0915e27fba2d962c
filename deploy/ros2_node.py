"""A node of ROS 2: point clouds in, ``vision_msgs/Detection3DArray`` and markers out.

For computers that have ROS 2 (rclpy, vision_msgs, visualization_msgs) and this package in one Python:

    python3 ros2_node.py --ros-args -p topic:=/points -p weights:=pointpillars-kitti -p device:=cuda

``detections`` has boxes in the frame of the sensor with ids of tracks, ``markers`` the same to see.
Without ROS the file can be imported. A robot whose middleware is rmw_zenoh needs no such node: `perceive live
ros2:/points`.
"""

from __future__ import annotations

import threading
from typing import Any

from perception import Detector
from perception.errors import DataError
from perception.live import LiveRun, PushedScans, Result
from perception.live.ros2 import CloudDecoder, described


class Decoding:
    """Clouds as they lie in the memory of ROS, handed to a run.

    Args:
        source: of the run.
        topic: that they come from.
    """

    def __init__(self, source: PushedScans, topic: str) -> None:
        self._source, self._decode = source, CloudDecoder(topic)

    def __call__(self, data: bytes, time_ns: int) -> None:
        """A serialised ``sensor_msgs/PointCloud2`` that came at a time."""
        try:
            found = self._decode(bytes(data), time_ns)
        except DataError as error:
            self._source.put(error)
            return
        self._source.put(found.cloud, sensor=found.frame_id)


class Publishing:
    """A sink that publishes; made where ROS is."""

    def __init__(self, node: Any) -> None:
        from vision_msgs.msg import Detection3DArray
        from visualization_msgs.msg import MarkerArray

        self._node = node
        self._detections = node.create_publisher(Detection3DArray, "detections", 10)
        self._markers = node.create_publisher(MarkerArray, "markers", 10)

    def take(self, result: Result) -> None:
        """Publish a result."""
        from std_msgs.msg import Header
        from vision_msgs.msg import Detection3D, Detection3DArray, ObjectHypothesisWithPose
        from visualization_msgs.msg import Marker, MarkerArray

        header = Header(frame_id=result.arrival.sensor)
        time_ns = result.arrival.cloud.timestamp_ns or 0
        header.stamp.sec, header.stamp.nanosec = divmod(time_ns, 10**9)
        array, markers = Detection3DArray(header=header), MarkerArray()
        markers.markers.append(Marker(header=header, action=Marker.DELETEALL))
        for thing in described(result.tracks):
            box = Detection3D(header=header, id=str(thing.number))
            hypothesis = ObjectHypothesisWithPose()
            hypothesis.hypothesis.class_id, hypothesis.hypothesis.score = thing.label, thing.score
            marker = Marker(header=header, id=thing.number % 2**31, ns="tracks", type=Marker.CUBE)
            for pose in (box.bbox.center, hypothesis.pose.pose, marker.pose):
                pose.position.x, pose.position.y, pose.position.z = thing.centre
                turn = pose.orientation
                turn.x, turn.y, turn.z, turn.w = thing.turn
            for size in (box.bbox.size, marker.scale):
                size.x, size.y, size.z = thing.size
            marker.color.g, marker.color.a = 1.0, 0.4
            box.results.append(hypothesis)
            array.detections.append(box)
            markers.markers.append(marker)
        self._detections.publish(array)
        self._markers.publish(markers)

    def close(self) -> None:
        """The node ends its publishers itself."""


def main() -> None:
    """Run until ROS is shut down."""
    import rclpy
    from rclpy.qos import qos_profile_sensor_data
    from sensor_msgs.msg import PointCloud2

    rclpy.init()
    node = rclpy.create_node("sparsight")
    for name, usual in (("topic", "/points"), ("weights", "pointpillars-kitti"), ("device", "cpu")):
        node.declare_parameter(name, usual)
    topic, weights, device = (
        node.get_parameter(name).get_parameter_value().string_value for name in ("topic", "weights", "device")
    )
    source = PushedScans(topic)
    decode = Decoding(source, topic)
    detector = Detector.from_pretrained(weights, device=device)
    detector.warmup()
    run = LiveRun(source, detector, sinks=[Publishing(node)], say=node.get_logger().warning)

    def came(data: bytes) -> None:
        decode(data, node.get_clock().now().nanoseconds)

    # Bytes as they came: rclpy takes many times as long to make lists of points of them.
    node.create_subscription(PointCloud2, topic, came, qos_profile_sensor_data, raw=True)
    running = threading.Thread(target=run.run)
    running.start()
    try:
        rclpy.spin(node)
    except KeyboardInterrupt:
        pass
    finally:
        run.stop()
        running.join()
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
