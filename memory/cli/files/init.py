"""``recall init``: create a store."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from memory.cli.console import (
    DIM,
    UsageError,
    add_command,
    check_free,
    print_json,
    say,
    shown,
    split_words,
)
from memory.config import StoreConfig
from memory.errors import NotAStoreError
from memory.index.kinds import STORE_KINDS
from memory.persistence.opening import open_database
from memory.persistence.sqlite.files import FILE_NAME
from memory.store import MemoryStore


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "init", run)
    parser.add_argument("--dim", type=int, default=DIM, help=f"vector length (default: {DIM})")
    parser.add_argument(
        "--config", type=Path, help="JSON file with settings, like the config.json of a store"
    )
    parser.add_argument(
        "--index", choices=STORE_KINDS, help="vector index (default: lsh); recall indexes describes them"
    )
    parser.add_argument(
        "--capacity", type=int, help="maximum memories per map; recall consolidate enforces it"
    )


def run(options: argparse.Namespace) -> int:
    """Create the store; refuse if it exists."""
    folder, _ = split_words(options)
    if _is_there(folder):
        raise UsageError(
            f"{shown(folder)} already holds a store. Choose another place, or use this one without init"
        )
    check_free(folder)
    if options.capacity is not None and options.capacity < 1:
        raise UsageError(f"--capacity must be at least 1, got {options.capacity}")
    config = StoreConfig() if options.config is None else _read_config(options.config)
    if options.capacity is not None:
        config = dataclasses.replace(config, capacity=options.capacity)
    if options.index is not None:
        config = dataclasses.replace(config, index=options.index)
    with MemoryStore.open(folder, dim=options.dim, config=config) as store:
        made = {"store": shown(folder if store.database.shared else store.folder), "dim": store.dim}
    where = f"in {folder / 'config.json'}" if isinstance(folder, Path) else "in the database"
    if options.json:
        print_json(made)
    else:
        say(f"created {shown(folder)}: vector length {made['dim']}, settings {where}")
    return 0


def _is_there(place: Path | str) -> bool:
    """True if there is a store, even one of another release."""
    if isinstance(place, Path):
        return (place / FILE_NAME).exists()
    try:
        open_database(place, readonly=True).close()
    except NotAStoreError:
        return False
    return True


def _read_config(path: Path) -> StoreConfig:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("expected a JSON object")
        return StoreConfig.from_json(found)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
