"""Tracks as memories: one memory per static object, one event per motion."""

from memory.tracks.collection import Sights
from memory.tracks.linking import BoxLinker
from memory.tracks.memories import TrackMemories
from memory.tracks.stories import TrackOptions

__all__ = ["BoxLinker", "Sights", "TrackMemories", "TrackOptions"]
