"""``perceive live``: detect and track while scans arrive."""
