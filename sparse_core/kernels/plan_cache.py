"""Where the owner of launch plans keeps them."""

from __future__ import annotations


class PlanCache(dict[object, object]):
    """Launch plans by key, and what is known of a key before its plan is made.

    An entry is False where a call can have no plan. A full cache starts afresh, so that operands of endless
    shapes do not fill the memory.
    """

    def keep(self, key: object, entry: object, most: int) -> None:
        """Keep an entry; clear a cache of ``most`` entries first."""
        if len(self) >= most and key not in self:
            self.clear()
        self[key] = entry
