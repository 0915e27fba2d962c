"""Modules of the demos, which are scripts and no installed package."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from benchmarks.lib.environment import ROOT


def demo_module(package: str, name: str) -> Any:
    """Import a module of a package of `demos`.

    Args:
        package: of the demos, such as "drive".
        name: of the module, such as "town".
    """
    # On the path, because processes that are started later import the modules themselves.
    folder = str(ROOT / "demos")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(f"{package}.{name}")


def drive_module(name: str) -> Any:
    """Import a module of `demos/drive`."""
    return demo_module("drive", name)
