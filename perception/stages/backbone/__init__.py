"""Backbone: packed convolutions over the active cells of each level, or dense ones."""
