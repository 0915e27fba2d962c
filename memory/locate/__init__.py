"""Relocalization: where a robot without a pose is, from one scan and the memories of a store."""

from memory.locate.answers import LocateOptions, LocateResult, PoseCandidate

__all__ = ["LocateOptions", "LocateResult", "PoseCandidate"]
