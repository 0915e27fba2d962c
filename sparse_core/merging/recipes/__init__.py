"""Recipes of merges in YAML, and their parameters."""
