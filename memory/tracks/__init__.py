"""Tracks as memories: what stood is one thing with all its sights, what moved an episode with its way."""

from memory.tracks.gathering import Sights
from memory.tracks.remembering import TrackMemories
from memory.tracks.stories import TrackOptions

__all__ = ["Sights", "TrackMemories", "TrackOptions"]
