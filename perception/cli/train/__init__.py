"""``perceive train``: training of detectors."""
