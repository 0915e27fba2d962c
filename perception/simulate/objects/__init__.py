"""Meshes of objects and scenery."""
