"""Modules of the demos, which are scripts and no installed package."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

from benchmarks.lib.environment import ROOT


def drive_module(name: str) -> Any:
    """Import a module of `demos/drive`.

    Args:
        name: of the module, such as "town".
    """
    if "drive" not in sys.modules:
        folder = ROOT / "demos" / "drive"
        spec = importlib.util.spec_from_file_location(
            "drive", folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules["drive"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["drive"])
    return importlib.import_module(f"drive.{name}")
