"""Where a topic of ROS 2 is: its router, domain and name."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

SCHEME = "ros2"
#: Distributions with rmw_zenoh; messages of Humble have no hashes.
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
        name: of the topic or namespace, with a slash before it; ``""`` for the root namespace.
        host, port: of the router of Zenoh.
        domain: of ROS.
        distro: one of :data:`DISTROS`.
    """

    name: str
    host: str = "localhost"
    port: int = _ROUTER_PORT
    domain: int = 0
    distro: str = "jazzy"

    @classmethod
    def parse(cls, text: str) -> Ros2Address:
        """An address in words; the domain is that of ``ROS_DOMAIN_ID`` where it names none.

        Raises:
            ValueError: it is none; says what is wrong.
        """
        usual = f"{text}: expected ros2:[//HOST[:PORT]]/TOPIC[?domain=N&distro={'|'.join(DISTROS)}]"
        try:
            parts = urlsplit(text)
            port, said = parts.port, dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        except ValueError as error:
            raise ValueError(f"{usual}; {error}") from error
        if parts.scheme != SCHEME:
            raise ValueError(usual)
        unknown = [key for key in said if key not in _KEYS]
        if unknown:
            raise ValueError(f"{usual}; {unknown[0]!r} is none of {', '.join(_KEYS)}")
        distro = said.get("distro", "jazzy")
        if distro not in DISTROS:
            raise ValueError(f"{usual}; distro {distro!r} is none of them")
        name = "" if parts.path in ("", "/") else "/" + parts.path.removeprefix("/")
        if name and not _NAME.fullmatch(name):
            raise ValueError(f"{usual}; {name!r} is no name of ROS: letters, digits, _ and / between words")
        where = "domain=" if "domain" in said else "ROS_DOMAIN_ID="
        domain = said.get("domain", os.environ.get("ROS_DOMAIN_ID") or "0")
        if not (domain.isascii() and domain.isdigit() and int(domain) <= _DOMAINS):
            raise ValueError(f"{usual}; {where}{domain} is no number from 0 to {_DOMAINS}")
        return cls(name, parts.hostname or "localhost", port or _ROUTER_PORT, int(domain), distro)

    @property
    def endpoint(self) -> str:
        """The router, as Zenoh names it."""
        return f"tcp/[{self.host}]:{self.port}" if ":" in self.host else f"tcp/{self.host}:{self.port}"
