"""Addresses of stores on a server, as libpq takes them: ``postgresql://user:password@host:port/database``."""

from __future__ import annotations

import os
import re

_ADDRESS = re.compile(r"postgres(?:ql)?://")
_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^@]*@|(?<=[?&])password=[^&]*&?")


def is_address(path: str | os.PathLike[str]) -> bool:
    """Whether this means a database of a server and no folder."""
    return isinstance(path, str) and _ADDRESS.match(path) is not None


def without_password(address: str) -> str:
    """The address as messages and logs may show it."""
    return _PASSWORD.sub(lambda found: f"{found[1]}@" if found[1] is not None else "", address)
