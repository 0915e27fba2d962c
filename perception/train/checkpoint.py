"""Checkpoint files, from which a stopped training resumes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from perception.errors import CheckpointError
from sparse_core.common.files import save_torch


def write_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write the state of a run; an existing file is replaced atomically."""
    save_torch(path, dict(state))


def read_checkpoint(path: Path, settings: Mapping[str, Any], device: torch.device) -> dict[str, Any] | None:
    """Read the state of a run; None if there is none.

    Args:
        path: of the file.
        settings: settings that the resumed run must share with the stopped one.
        device: to load tensors to.

    Raises:
        CheckpointError: the file is damaged or belongs to another run.
    """
    if not path.is_file():
        return None
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        stored = dict(state["config"])
    except Exception as error:
        raise damaged_checkpoint(path, error) from error
    _check_same_run(path, stored, settings)
    return dict(state)


def damaged_checkpoint(path: Path, error: Exception) -> CheckpointError:
    """Return the error for an unreadable checkpoint."""
    # torch's message is left to the traceback, because it advises to load the file without safeguards.
    reason = type(error).__name__
    return CheckpointError(f"{path}: damaged, or not a checkpoint ({reason}). Delete it to start again")


def _check_same_run(path: Path, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    # Settings that do not affect the result may change between calls.
    free = {"workers", "memory_gb", "checkpoint_every", "validate_every"}
    for name in sorted((stored.keys() | wanted.keys()) - free):
        if stored.get(name) != wanted.get(name):
            option = " (--from)" if name == "fine_tune" else ""
            raise CheckpointError(
                f"{path}: belongs to a run with another {name!r}{option}. To resume, use the original value;"
                " otherwise choose another folder or delete the file"
            )
