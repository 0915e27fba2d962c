"""``perceive track``: objects followed through scans."""
