"""Merging."""
