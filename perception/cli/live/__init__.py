"""``perceive live``: detection and tracking while scans arrive."""
