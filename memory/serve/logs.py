"""Log lines on standard error, as text or JSON, in UTC. They never contain bodies, queries or tokens."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from typing import Any

#: Logger of requests, at level INFO.
REQUESTS = logging.getLogger("memory.serve.requests_log")
#: Additional fields of a request line.
FIELDS = ("client", "method", "path", "status", "ms")


def log_config(*, verbosity: int, as_json: bool) -> dict[str, Any]:
    """Return the argument of :func:`logging.config.dictConfig`.

    Args:
        verbosity: -1 logs errors only, 0 also warnings, 1 also requests.
        as_json: log lines of JSON.
    """
    warnings = "ERROR" if verbosity < 0 else "WARNING"
    loggers = {
        name: {"level": level, "handlers": ["lines"], "propagate": False}
        for name, level in (("uvicorn", warnings), ("memory", "INFO" if verbosity > 0 else warnings))
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": JsonLines if as_json else TextLines}},
        "handlers": {
            "lines": {
                "class": "logging.StreamHandler",
                "stream": "ext://sys.stderr",
                "formatter": "lines",
            }
        },
        "loggers": loggers,
    }


def _when(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextLines(logging.Formatter):
    """``2026-01-01T10:00:00.000Z WARNING memory.serve.guard: message``, then a traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a line."""
        message = record.getMessage().encode("unicode_escape").decode("ascii")
        line = f"{_when(record)} {record.levelname} {record.name}: {message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """``{"time", "level", "logger", "message"}``, ``"traceback"`` if there is one, and :data:`FIELDS`."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a line."""
        found: dict[str, Any] = {
            "time": _when(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        found |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json.dumps(found)


def note_request(scope: Any, status: int, seconds: float) -> None:
    """Log an answered request."""
    client = scope.get("client")
    address = client[0] if client else "-"
    milliseconds = round(1e3 * seconds, 1)
    REQUESTS.info(
        "%s %s %s %d %.1f ms", address, scope["method"], scope["path"], status, milliseconds,
        extra=dict(zip(FIELDS, (address, scope["method"], scope["path"], status, milliseconds), strict=True)),
    )  # fmt: skip
