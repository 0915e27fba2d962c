"""Upkeep: merging, forgetting, marking, and moving the maps of robots onto each other."""
