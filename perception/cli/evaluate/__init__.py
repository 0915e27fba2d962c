"""``perceive eval``: evaluation of detectors and result files."""
