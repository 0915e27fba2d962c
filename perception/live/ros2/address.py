"""Addresses of ROS 2 topics: router, domain and name."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

SCHEME = "ros2"
#: Distributions with rmw_zenoh; Humble has no type hashes.
DISTROS = ("humble", "jazzy", "kilted", "lyrical", "rolling")
_KEYS = ("domain", "distro")
_ROUTER_PORT = 7447
#: Names of ROS 2: https://design.ros2.org/articles/topic_and_service_names.html
_NAME = re.compile(r"(/[A-Za-z_][A-Za-z0-9_]*)+")
#: The largest domain of ROS 2.
_DOMAINS = 232


@dataclass(frozen=True)
class Ros2Address:
    """A topic or namespace behind a router: ``ros2:[//HOST[:PORT]]/NAME[?domain=N&distro=humble]``.

    Attributes:
        name: topic or namespace with a leading slash; "" for the root namespace.
        host, port: address of the Zenoh router.
        domain: ROS domain.
        distro: one of :data:`DISTROS`.
    """

    name: str
    host: str = "localhost"
    port: int = _ROUTER_PORT
    domain: int = 0
    distro: str = "jazzy"

    @classmethod
    def parse(cls, text: str) -> Ros2Address:
        """Parse an address, by default in the domain ``ROS_DOMAIN_ID``; raise ``ValueError`` if invalid."""
        usual = "Write ros2:[//HOST[:PORT]]/TOPIC[?domain=N&distro=DISTRO]"
        try:
            parts = urlsplit(text)
            port, query = parts.port, dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        except ValueError as error:
            raise ValueError(f"{text}: {error}. {usual}") from error
        if parts.scheme != SCHEME:
            raise ValueError(f"{text}: not a ROS 2 address. {usual}")
        unknown = [key for key in query if key not in _KEYS]
        if unknown:
            raise ValueError(f"{text}: unknown key {unknown[0]!r}. {usual}")
        distro = query.get("distro", "jazzy")
        if distro not in DISTROS:
            raise ValueError(f"{text}: unknown distro {distro!r}. Choose one of {', '.join(DISTROS)}.")
        name = "" if parts.path in ("", "/") else "/" + parts.path.removeprefix("/")
        if name and not _NAME.fullmatch(name):
            raise ValueError(
                f"{text}: {name!r} is not a ROS name. Use letters, digits and _, with / between words."
            )
        where = "domain=" if "domain" in query else "ROS_DOMAIN_ID="
        domain = query.get("domain", os.environ.get("ROS_DOMAIN_ID") or "0")
        if not (domain.isascii() and domain.isdigit() and int(domain) <= _DOMAINS):
            raise ValueError(f"{text}: {where}{domain} must be a number from 0 to {_DOMAINS}")
        return cls(name, parts.hostname or "localhost", port or _ROUTER_PORT, int(domain), distro)

    @property
    def endpoint(self) -> str:
        """Zenoh's name of the router."""
        return f"tcp/[{self.host}]:{self.port}" if ":" in self.host else f"tcp/{self.host}:{self.port}"
