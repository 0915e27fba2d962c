"""Nuscenes."""
