"""Cache of launch plans."""

from __future__ import annotations


class PlanCache(dict[object, object]):
    """Launch plans of one matrix, by key.

    Before its plan is made, an entry holds the launches of the first call. It is False if calls with this key
    cannot have a plan. A full cache is cleared, so that endless shapes do not fill the memory.
    """

    def keep(self, key: object, entry: object, most: int) -> None:
        """Store an entry; clear a cache of ``most`` entries first."""
        if len(self) >= most and key not in self:
            self.clear()
        self[key] = entry
