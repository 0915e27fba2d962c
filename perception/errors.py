"""Exceptions of the perception package.

    PerceptionError
    ├── DataError          a file or array that cannot be used: names the file, line or field, and the fix
    ├── ConfigError        a configuration field that is unknown, missing or out of range
    └── CheckpointError    weights that are corrupt or belong to another configuration

    UserWarning
    └── ScanWarning        a scan that a detector cannot read as it is meant: unit, axes, range, intensity

Bad arguments to functions raise the built-in ``ValueError`` and ``TypeError``; the two domain
errors that stand for a bad value derive from ``ValueError`` as well.
"""

from __future__ import annotations


class PerceptionError(Exception):
    """Base of every error that perception raises on purpose."""


class DataError(PerceptionError, ValueError):
    """Input data that cannot be used; the message names the file, line or field, and the fix."""


class ConfigError(PerceptionError, ValueError):
    """A configuration field that is unknown, missing or out of range."""


class CheckpointError(PerceptionError):
    """Weights that are corrupt or do not belong to the configuration they are loaded into."""


class ScanWarning(UserWarning):
    """A scan is doubtful, so that objects are missed; the message says why, and what mends it."""
