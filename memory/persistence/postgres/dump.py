"""Backup of a store on a server into one file, by PostgreSQL's own programs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from psycopg import conninfo

from memory.errors import StoreError
from memory.persistence.postgres import server
from sparse_core.common.files import replacing

#: Name of the file.
FILE_NAME = "store.dump"


def dump(address: str, schema: str, folder: Path) -> Path:
    """Write the tables of a schema, as of one moment, into a folder; return the file.

    Raises:
        FileExistsError: the file exists already.
        StoreError: pg_dump is missing or failed.
    """
    file = folder / FILE_NAME
    if file.exists():
        raise FileExistsError(f"{file} exists already. Choose another folder")
    tool = program("pg_dump")
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(file, private=True) as temporary:
        quoted = schema.replace('"', '""')
        _run([str(tool), "--format=custom", f'--schema="{quoted}"', f"--file={temporary}"], address)
        # Its table of contents is at the end, so a truncated file has none.
        _run([str(program("pg_restore")), "--list", str(temporary)], None)
    return file


def program(name: str) -> Path:
    """Return one of PostgreSQL's programs, from the path or from the server of ``recall up``.

    Raises:
        StoreError: the program is missing.
    """
    known = shutil.which(name)
    if known is not None:
        return Path(known)
    found = server.programs(server.default_folder())
    if found is None:
        raise StoreError(
            f"{name} is missing. Install the PostgreSQL client programs of the server's version (on Debian"
            " and Ubuntu: postgresql-client), or run recall up, which fetches them"
        )
    return found / name


def _run(words: list[str], address: str | None) -> None:
    environment = dict(os.environ)
    if address is not None:
        # Pass the password by the environment, because other users of this computer see command lines.
        known = conninfo.conninfo_to_dict(address)
        environment["PGPASSWORD"] = str(known.pop("password", None) or environment.get("PGPASSWORD", ""))
        words = [*words, f"--dbname={conninfo.make_conninfo('', **known)}"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StoreError(f"{Path(words[0]).name}: {done.stderr.strip()}")
