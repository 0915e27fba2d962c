"""Tracks of objects, and objects recognized again."""
