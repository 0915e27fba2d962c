"""HTTP client of ``recall serve`` for synchronization."""

from __future__ import annotations

import http.client
import json
import socket
import time
from typing import Any
from urllib.parse import quote, urlsplit

from memory.errors import DataError, StaleSyncError, SyncError
from memory.persistence.log.batches import Batch, Position
from memory.persistence.log.reception import Receipt
from memory.sync.areas import AreaMessage, AreaReport
from memory.sync.wire import batch_json, batch_of, position_json, position_of

#: Bytes sent at once, and bytes that the socket buffers. Both are small, because the timeout covers one
#: portion on a slow link.
_PORTION, _WAITING = 16384, 65536


def is_service(word: str) -> bool:
    """Return True if a word is the address of a service."""
    return word.startswith(("http://", "https://"))


class ServiceClient:
    """Client that sends to a service, and pulls from it what other robots saw.

    Args:
        address: ``http://host:port`` or ``https://host``, optionally with a path before ``/api``.
        token: access token of the service.
        rate: average limit in bytes per second; ``None`` for no limit.
        timeout_s: seconds without an answer after which the service counts as unreachable.
    """

    def __init__(
        self, address: str, *, token: str | None = None, rate: float | None = None, timeout_s: float = 60.0
    ) -> None:
        parts = urlsplit(address)
        if not is_service(address) or parts.hostname is None:
            raise ValueError(f"{address} is not the address of a service. Use http://host:port")
        self.address, self._token, self._rate, self._timeout_s = address, token, rate, timeout_s
        self._path = parts.path.rstrip("/")
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port = parts.hostname, parts.port
        self._connection: http.client.HTTPConnection | None = None
        self._free_at = 0.0

    def position(self, store: str) -> Position:
        """See :class:`memory.sync.inbox.Receiver`."""
        return position_of(self._ask("GET", f"/api/sync/{quote(store, safe='')}"))

    def receive(self, batch: Batch) -> Receipt:
        """See :class:`memory.sync.inbox.Receiver`."""
        found = self._ask("POST", "/api/sync", {"batch": batch_json(batch)})
        # A service of an earlier release sends no clock fields.
        return Receipt(**{name: found[name] for name in Receipt._fields if name in found})

    def pull(self, position: Position, *, name: str, maps: list[str] | None) -> Batch | None:
        """Return the next batch of what others saw."""
        body = {"position": position_json(position), "name": name, "maps": maps}
        found = self._ask("POST", "/api/pull", body)["batch"]
        return None if found is None else batch_of(found)

    def take_areas(self, message: AreaMessage) -> AreaReport:
        """See :class:`memory.sync.inbox.Receiver`."""
        found = self._request("POST", "/api/areas/sync", {"areas": message.to_json()})
        return AreaReport(supported=False) if found is None else AreaReport.of_json(found)

    def pull_areas(self, store: str, *, name: str, maps: list[str] | None) -> AreaMessage | None:
        """Return the areas for a store; None from a service of an earlier release."""
        body = {"store": store, "name": name, "maps": maps}
        found = self._request("POST", "/api/areas/pull", body)
        return None if found is None else AreaMessage.of_json(found["areas"])

    def store(self) -> str:
        """Return the random name of the service's store."""
        return self.position("-").store

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        found = self._request(method, path, body)
        if found is None:
            raise SyncError(f"{self.address}{path} is no address of recall serve. Check the address")
        return found

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """Return the answer; None if the service has no such address."""
        sent = None if body is None else json.dumps(body).encode()
        self._wait(0 if sent is None else len(sent))
        headers, portions = {}, None
        if sent is not None:
            headers = {"Content-Type": "application/json", "Content-Length": str(len(sent))}
            portions = [sent[start : start + _PORTION] for start in range(0, len(sent), _PORTION)]
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            if self._connection is None:
                self._connection = self._kind(self._host, self._port, timeout=self._timeout_s)
                self._connection.connect()
                self._connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _WAITING)
            self._connection.request(method, self._path + path, portions, headers)
            answer = self._connection.getresponse()
            raw, status = answer.read(), answer.status
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise SyncError(f"cannot reach {self.address}: {error or type(error).__name__}") from error
        try:
            found = json.loads(raw)
            if status == 200 and isinstance(found, dict):
                return found
            problem = found["error"]
            message, sort = str(problem["message"]), str(problem["type"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{self.address}{path}: not an answer of recall serve (status {status}). Check the address"
            ) from error
        if sort in ("not_found", "method_not_allowed"):
            return None
        if sort == "stale":
            raise StaleSyncError(message)
        if status == 401:
            message = "the token is missing or wrong. Give --token or $RECALL_TOKEN"
        if sort == "too_large":
            message += ". Send fewer memories at once (--batch)"
        raise SyncError(f"{self.address} refused the request: {message}")

    def _wait(self, size: int) -> None:
        """Wait until this many bytes may be sent."""
        if self._rate is not None and size:
            now = time.monotonic()
            time.sleep(max(self._free_at - now, 0.0))
            self._free_at = max(self._free_at, now) + size / self._rate
