"""Rate limit per client: a token bucket for each."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable

#: Maximum number of buckets; the least recently used is dropped.
CLIENTS = 10_000


class RateLimit:
    """Limit of ``rate`` requests per second (above 0) and ``burst`` at once (at least 1) for each client."""

    def __init__(self, rate: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Count a request and return 0, or return the seconds to wait."""
        now = self._clock()
        left, at = self._left.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        wait = 0.0 if left >= 1.0 else (1.0 - left) / self._rate
        self._left[client] = (left if wait else left - 1.0, now)
        if len(self._left) > CLIENTS:
            self._left.popitem(last=False)
        return wait


def client_of(address: tuple[str, int] | list | None) -> str:
    """Return the client of an address: the IPv4 address, or the IPv6 /64 network."""
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
    """Return the value of the Retry-After header."""
    return str(max(1, math.ceil(wait_s)))
