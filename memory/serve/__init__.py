"""The memory as a service: HTTP for programs and people (:func:`create_app`), tools for language models.

Importing this package needs no further library; :func:`create_app` needs the extra ``serve`` and
:mod:`memory.serve.mcp.server` the extra ``mcp``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory.serve.options import ServeOptions

if TYPE_CHECKING:
    from fastapi import FastAPI

    from memory.store import MemoryStore

__all__ = ["ServeOptions", "create_app"]


def create_app(
    store: MemoryStore, *, token: str | None = None, options: ServeOptions | None = None
) -> FastAPI:
    """The service of an open store; whoever opened the store closes it after the service has ended.

    Args:
        store: for writing, or for reading only.
        token: that every request to ``/api`` must bring; ``None`` for none.
        options: limits.

    Raises:
        ImportError: FastAPI is not installed.
        ValueError: the token cannot be sent in a header, or any host may ask and there is no token.
    """
    try:
        from memory.serve.app import make_app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("fastapi", "starlette", "pydantic"):
            raise ImportError("serving needs FastAPI: pip install 'sparsight[serve]'") from error
        raise
    return make_app(store, token, options or ServeOptions())
