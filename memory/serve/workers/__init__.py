"""Threads that do the work of requests, in turn and counted."""
