"""``recall mcp``: serve a store to language models over standard input and output."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from pathlib import Path
from typing import Any

from memory import MemoryStore
from memory.cli.console import UsageError, add_command, split_words


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "mcp", run)
    parser.add_argument(
        "--readonly", action="store_true", help="offer only tools that do not change the store"
    )
    parser.add_argument(
        "--scans",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="folder of scans that detection tools may read (default: current folder)",
    )
    parser.add_argument(
        "--memory-only", action="store_true", help="offer no tools of other packages, such as detection"
    )


def run(options: argparse.Namespace) -> int:
    """Serve until the input or the process ends."""
    folder, _ = split_words(options)
    if not options.scans.is_dir():
        raise UsageError(f"--scans {options.scans}: folder not found")
    try:
        from memory.serve.mcp.server import create_tool_server, serve_stdio
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastapi", "starlette", "pydantic"):
            raise
        raise ImportError(
            "recall mcp needs the package mcp 2. Install it: pip install 'sparsight[mcp]'"
        ) from error

    import anyio

    with MemoryStore.open(folder, readonly=options.readonly, create=False) as store:
        server = create_tool_server(store, scans=None if options.memory_only else options.scans)
        _close_when_asked(store)
        anyio.run(serve_stdio, server)
    return 0


def _close_when_asked(store: MemoryStore) -> None:
    """Close the store and exit on a signal, because a thread that waits for input cannot be interrupted."""

    def end(number: int, frame: object) -> None:
        def close() -> None:
            store.close()
            os._exit(0)

        threading.Thread(target=close).start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
