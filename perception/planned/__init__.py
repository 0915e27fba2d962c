"""The first stage on a CPU: as few and as large matrix products as a frame allows."""

from perception.planned.maps import PlannedMaps

__all__ = ["PlannedMaps"]
