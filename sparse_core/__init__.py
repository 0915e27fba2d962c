"""Sparse building blocks for perception and memory, useful on their own."""

__version__ = "0.1.0"
