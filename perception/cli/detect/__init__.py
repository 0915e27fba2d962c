"""``perceive detect``: objects in point clouds."""
