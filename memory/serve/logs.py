"""Lines of the log, for people or as JSON: on standard error, in UTC, without bodies, queries and tokens."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from typing import Any

#: A line for each request, at level INFO.
REQUESTS = logging.getLogger("memory.serve.requests_log")
#: What such a line has beside the message.
FIELDS = ("client", "method", "path", "status", "ms")


def log_config(*, verbose: bool, as_json: bool) -> dict[str, Any]:
    """For :func:`logging.config.dictConfig`.

    Args:
        verbose: also a line for each request.
        as_json: an object a line.
    """
    loggers = {
        name: {"level": level, "handlers": ["lines"], "propagate": False}
        for name, level in (("uvicorn", "WARNING"), ("memory", "INFO" if verbose else "WARNING"))
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
        """The line."""
        message = record.getMessage().encode("unicode_escape").decode("ascii")
        line = f"{_when(record)} {record.levelname} {record.name}: {message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """``{"time", "level", "logger", "message"}``, ``"traceback"`` if there is one, and :data:`FIELDS`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
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
    """Write the line of a request that was answered."""
    client = scope.get("client")
    address = client[0] if client else "-"
    milliseconds = round(1e3 * seconds, 1)
    REQUESTS.info(
        "%s %s %s %d %.1f ms", address, scope["method"], scope["path"], status, milliseconds,
        extra=dict(zip(FIELDS, (address, scope["method"], scope["path"], status, milliseconds), strict=True)),
    )  # fmt: skip
