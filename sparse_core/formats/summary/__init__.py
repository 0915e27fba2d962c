"""Measurements of a matrix."""
