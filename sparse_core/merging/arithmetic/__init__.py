"""Arithmetic."""
