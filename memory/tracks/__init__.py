"""Tracks as memories: what stood is one thing with all its sights, what moved an episode with its way."""

from memory.tracks.collection import Sights
from memory.tracks.memories import TrackMemories
from memory.tracks.stories import TrackOptions

__all__ = ["Sights", "TrackMemories", "TrackOptions"]
