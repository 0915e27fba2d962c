"""Processes that answer reading requests of one port, and forward the others to the process that writes."""
