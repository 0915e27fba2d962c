"""Conditions on each object of a list, and questions about several objects."""
