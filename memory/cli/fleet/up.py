"""``recall up``: start or stop a local PostgreSQL server."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from memory.cli.console import UsageError, add_command, print_json, say
from memory.persistence.postgres import server
from sparse_core.common.console import LOG


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "up", run, store=False)
    parser.add_argument(
        "--folder", type=Path, help=f"folder of the server's files (default: {server.default_folder()})"
    )
    parser.add_argument("--port", type=int, help="local port (default: any free port)")
    parser.add_argument("--stop", action="store_true", help="stop the server; stored memories stay")


def run(options: argparse.Namespace) -> int:
    """Start or stop the server."""
    folder = server.default_folder() if options.folder is None else options.folder.absolute()
    if options.port is not None and not 0 < options.port < 65536:
        raise UsageError(f"--port must be from 1 to 65535, got {options.port}")
    if options.stop:
        ran = server.stop(folder)
        if options.json:
            print_json({"folder": str(folder), "stopped": ran})
        else:
            say(f"stopped the server of {folder}" if ran else f"no server of {folder} is running")
        return 0
    address = server.start(folder, port=options.port)
    if options.json:
        print_json({"folder": str(folder), "address": address})
    else:
        LOG.info(
            f"the server of {folder} is running; recall init ADDRESS creates a store, recall up --stop ends"
            " it"
        )
        say(address)
    return 0
