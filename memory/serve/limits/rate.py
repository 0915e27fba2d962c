"""How many requests a client may make: a token bucket each."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable

#: Clients that are remembered; who was away for longest is forgotten, and starts with a full bucket.
CLIENTS = 10_000


class RateLimit:
    """Lets a client make ``rate`` requests a second on average and ``burst`` of them at once.

    Args:
        rate: above 0.
        burst: at least 1.
        clock: seconds.
    """

    def __init__(self, rate: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Seconds that the client has to wait; 0: the request may be made, and counts."""
        now = self._clock()
        left, at = self._left.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        wait = 0.0 if left >= 1.0 else (1.0 - left) / self._rate
        self._left[client] = (left if wait else left - 1.0, now)
        if len(self._left) > CLIENTS:
            self._left.popitem(last=False)
        return wait


def client_of(address: tuple[str, int] | list | None) -> str:
    """Who a request is counted for: an address, of which version 6 gives everybody a network."""
    if not address:
        return ""
    try:
        found = ipaddress.ip_address(str(address[0]).partition("%")[0])
    except ValueError:
        return str(address[0])
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
    return str(found)


def retry_after(wait_s: float) -> str:
    """The header's whole seconds."""
    return str(max(1, math.ceil(wait_s)))
