"""Processes that answer the reading requests of one port."""
