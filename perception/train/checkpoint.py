"""The file that a stopped training goes on from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from perception.errors import CheckpointError
from sparse_core.common.files import save_torch


def write_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write everything that a run needs to go on; a file that is there is replaced in one move."""
    save_torch(path, dict(state))


def read_checkpoint(path: Path, settings: Mapping[str, Any], device: torch.device) -> dict[str, Any] | None:
    """The state of a run; None where there is none yet.

    Args:
        path: of the file.
        settings: what the run that goes on must have in common with the one that stopped.
        device: to load tensors to.

    Raises:
        CheckpointError: a damaged file, or one of another run.
    """
    if not path.is_file():
        return None
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        stored = dict(state["config"])
    except Exception as error:
        raise damaged(path, error) from error
    _check_same_run(path, stored, settings)
    return dict(state)


def damaged(path: Path, error: Exception) -> CheckpointError:
    """That a file cannot be gone on from."""
    # The reason is left to the traceback: torch's message advises to load the file without safeguards.
    reason = type(error).__name__
    return CheckpointError(
        f"{path}: cannot be read, damaged or no checkpoint ({reason}); delete it to start again"
    )


def _check_same_run(path: Path, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    # What only decides how the work is done, not what comes out, may change between calls.
    free = {"workers", "memory_gb", "checkpoint_every"}
    for name in sorted((stored.keys() | wanted.keys()) - free):
        if stored.get(name) != wanted.get(name):
            said = " (--from)" if name == "fine_tune" else ""
            raise CheckpointError(
                f"{path}: belongs to a run with another {name!r}{said}; give what it began with to go on,"
                " choose another folder or delete it"
            )
