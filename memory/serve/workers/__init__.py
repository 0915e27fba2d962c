"""Threads that process requests."""
