"""Run a model on a batch of any usual form, in evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn


def call_model(model: nn.Module, batch: Any) -> Any:
    """What the model returns for one batch.

    Args:
        model: any module.
        batch: a mapping is given as keyword arguments, a tuple or list as positional ones, and anything else,
            such as a tensor, as the only argument.
    """
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, tuple | list):
        return model(*batch)
    return model(batch)


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put ``model`` into evaluation mode, and each of its modules back into its own mode at the end."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
