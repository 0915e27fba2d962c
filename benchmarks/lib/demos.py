"""Modules of the demos, which are scripts and no installed package."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from benchmarks.lib.environment import ROOT


def demo_module(package: str, name: str) -> Any:
    """Import a module of a package of `demos`.

    Args:
        package: of the demos, such as "drive".
        name: of the module, such as "town".
    """
    if package not in sys.modules:
        folder = ROOT / "demos" / package
        spec = importlib.util.spec_from_file_location(
            package, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules[package] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[package])
    return importlib.import_module(f"{package}.{name}")


def drive_module(name: str) -> Any:
    """Import a module of `demos/drive`."""
    return demo_module("drive", name)
