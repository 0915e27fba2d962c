"""Exceptions of the perception package.

    PerceptionError
    ├── DataError          unusable file or array
    ├── ConfigError        unknown, missing or out-of-range configuration field
    └── CheckpointError    corrupt weights, or weights of another configuration

    UserWarning
    ├── PrecisionWarning   a number format that makes frames slower
    └── ScanWarning        doubtful scan: unit, axes, range or intensity

Bad arguments raise the built-in ``ValueError`` and ``TypeError``. ``DataError`` and ``ConfigError`` are also
``ValueError``.
"""

from __future__ import annotations


class PerceptionError(Exception):
    """Base of all errors of this package."""


class DataError(PerceptionError, ValueError):
    """Unusable input data; the message names the file, line or field, and the fix."""


class ConfigError(PerceptionError, ValueError):
    """An unknown, missing or out-of-range configuration field."""


class CheckpointError(PerceptionError):
    """Corrupt weights, or weights of another configuration."""


class PrecisionWarning(UserWarning):
    """A number format that makes frames slower; the message names a better one."""


class ScanWarning(UserWarning):
    """A doubtful scan, in which objects are missed; the message gives the reason and the fix."""
