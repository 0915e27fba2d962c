"""``perceive train``: train detectors."""
