"""``perceive track``: track objects through scans."""
