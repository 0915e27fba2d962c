"""The launch plans of one matrix, by key."""

from __future__ import annotations


class PlanCache(dict[object, object]):
    """Launch plans by key.

    Before its plan is made, an entry holds the launches of the first call. It is False if calls with this key
    can have no plan. A full cache starts afresh, so that endless shapes do not fill the memory.
    """

    def keep(self, key: object, entry: object, most: int) -> None:
        """Keep an entry; clear a cache of ``most`` entries first."""
        if len(self) >= most and key not in self:
            self.clear()
        self[key] = entry
