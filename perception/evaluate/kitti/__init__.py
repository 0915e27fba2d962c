"""Kitti."""
