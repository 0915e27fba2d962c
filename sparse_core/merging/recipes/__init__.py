"""Merge recipes in YAML and their parameters."""
