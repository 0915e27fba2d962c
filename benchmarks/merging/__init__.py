"""Merging of models and of files."""
