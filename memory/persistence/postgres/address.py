"""Addresses of stores on a server, in libpq's form: ``postgresql://user:password@host:port/database``."""

from __future__ import annotations

import os
import re

_ADDRESS = re.compile(r"postgres(?:ql)?://")
_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^@]*@|(?<=[?&])password=[^&]*&?")


def is_address(path: str | os.PathLike[str]) -> bool:
    """Return True if this is a database address, not a folder."""
    return isinstance(path, str) and _ADDRESS.match(path) is not None


def without_password(address: str) -> str:
    """Return the address for messages and logs."""
    return _PASSWORD.sub(lambda found: f"{found[1]}@" if found[1] is not None else "", address)
