"""Upkeep of a store: merging, forgetting, marking, and alignment of the maps of several robots."""
