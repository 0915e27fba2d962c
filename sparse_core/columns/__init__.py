"""Columns of a point cloud with objects above the ground; shared by perception and memory."""
