"""``recall serve``: serve a store over HTTP."""

from __future__ import annotations

import argparse
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

from memory.cli.console import UsageError, add_command, counted, say, shown, split_words, warn_about_server
from memory.errors import StoreLockedError, StoreReadOnlyError
from memory.serve.options import ServeOptions, ServiceSettings
from memory.store import MemoryStore
from sparse_core.common.console import LOG

TOKEN_VARIABLE = "RECALL_TOKEN"
MOST_READERS = 64
_USUAL = ServeOptions()


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "serve", run)
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default: 127.0.0.1); other addresses need a token",
    )
    parser.add_argument("--port", type=int, default=8713, help="port (default: 8713); 0 for any free port")
    parser.add_argument(
        "--token",
        help=f"access token of the requests (safer: ${TOKEN_VARIABLE}, which other users do not see)",
    )
    parser.add_argument("--readonly", action="store_true", help="serve read-only; another process may write")
    parser.add_argument(
        "--readers", type=int, default=0, metavar="N",
        help="answer reading requests by this number of further processes (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--max-body-mb", type=float, default=_USUAL.max_body_bytes / 2**20, metavar="MB",
        help="maximum request size (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--rate", type=float, default=_USUAL.rate, metavar="N",
        help="maximum requests per second and client, 0 for no limit (default: %(default)g)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Serve until the process ends."""
    folder, _ = split_words(options)
    if not options.json:
        LOG.info("opening %s", shown(folder))
    # These import torch and FastAPI, which takes seconds.
    from memory.serve.readers.serving import serve_with_readers
    from memory.serve.running import serve, with_hosts

    token = options.token if options.token is not None else os.environ.get(TOKEN_VARIABLE) or None
    if not 0 <= options.port < 65536:
        raise UsageError(f"--port must be from 0 to 65535, got {options.port}")
    if not 0.0 < options.max_body_mb <= 1024.0:
        raise UsageError(f"--max-body-mb must be above 0 and at most 1024, got {options.max_body_mb}")
    if not 0.0 <= options.rate < float("inf"):
        raise UsageError(f"--rate must be 0 or more, got {options.rate}")
    if not 0 <= options.readers <= MOST_READERS:
        raise UsageError(f"--readers must be from 0 to {MOST_READERS}, got {options.readers}")
    limits = ServeOptions(
        max_body_bytes=max(1, int(options.max_body_mb * 2**20)),
        rate=options.rate,
        burst=max(1, int(2 * options.rate)),
    )
    settings = ServiceSettings(
        options.host, options.port, token, limits, verbosity=options.verbosity, json_log=options.json
    )
    # Check the settings first, because opening the store takes longer.
    with_hosts(settings)
    with _opened(folder, readonly=options.readonly) as store:

        def ready(address: str) -> None:
            if options.json:
                print(json.dumps({"address": address, "process": os.getpid()}), flush=True)
            else:
                say(f"{counted(len(store))} at {address} (end with Ctrl-C)")

        run_service = partial(serve_with_readers, readers=options.readers) if options.readers else serve
        run_service(store, settings, ready=ready)
    if not options.json:
        LOG.info("the store is closed")
    return 0


def _opened(folder: Path | str, *, readonly: bool) -> MemoryStore:
    try:
        store = MemoryStore.open(folder, readonly=readonly, create=False)
    except StoreLockedError as error:
        raise StoreLockedError(f"{error}. To serve it meanwhile, run recall serve --readonly") from error
    except StoreReadOnlyError:
        # Without its cause, which the console would report instead.
        raise UsageError(f"{shown(folder)} is not writable. Serve it with --readonly") from None
    warn_about_server(folder, store.database.remarks)
    return store
