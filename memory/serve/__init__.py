"""HTTP service with a web page (:func:`create_app`), and an MCP server for language models.

:func:`create_app` needs the extra ``serve``, :mod:`memory.serve.mcp.server` the extra ``mcp``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory.serve.options import ServeOptions

if TYPE_CHECKING:
    from fastapi import FastAPI

    from memory.store import MemoryStore

__all__ = ["ServeOptions", "create_app"]


def create_app(
    store: MemoryStore,
    *,
    token: str | None = None,
    options: ServeOptions | None = None,
    writer: str | None = None,
) -> FastAPI:
    """Create the HTTP service of an open store. The caller closes the store after the service has ended.

    Args:
        store: open store, also read-only.
        token: access token of all ``/api`` requests; ``None`` for none.
        options: limits.
        writer: Unix socket of the process that writes to the store; requests that change it are forwarded.

    Raises:
        ImportError: FastAPI is not installed.
        ValueError: the token is not valid in a header, or it is missing although all hosts are allowed.
    """
    try:
        from memory.serve.app import make_app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("fastapi", "starlette", "pydantic"):
            raise ImportError(
                "recall serve needs FastAPI. Install it: pip install 'sparsight[serve]'"
            ) from error
        raise
    return make_app(store, token, options or ServeOptions(), writer)
