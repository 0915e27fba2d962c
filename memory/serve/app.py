"""The service, put together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.routing import Match, Mount
from starlette.staticfiles import StaticFiles

from memory.serve.answers import problem_answer
from memory.serve.direct_routes import Direct
from memory.serve.errors import Problem, invalid
from memory.serve.guard import Guard
from memory.serve.metrics import Metrics
from memory.serve.names import check_parameters
from memory.serve.openapi.document import openapi
from memory.serve.options import ServeOptions
from memory.serve.routes import map_points, memories, metrics, operations, path, sync
from memory.serve.service import Service
from memory.store import MemoryStore

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Scope

PAGE = Path(__file__).parent / "page"


def make_app(store: MemoryStore, token: str | None, options: ServeOptions) -> FastAPI:
    """See :func:`memory.serve.create_app`."""
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise ValueError("the token must be printable ASCII, without spaces at its ends, and not empty")
    if options.hosts is None and token is None:
        raise ValueError("a service that any host may ask for needs a token")
    service = Service(store, options)
    app = _Application(
        title="recall",
        summary="A robot's memory.",
        version="1",
        docs_url=None,
        redoc_url=None,
        lifespan=service.running,
        redirect_slashes=False,
    )
    app.state.service = service
    named = [Depends(check_parameters)]
    app.include_router(memories.router, dependencies=named)
    app.include_router(operations.router, dependencies=named)
    app.include_router(sync.router, dependencies=named)
    app.state.map_columns = map_points.MapColumns(store.database)
    app.include_router(map_points.router, dependencies=named)
    app.include_router(path.router, dependencies=named)
    app.state.metrics = _metrics(service)
    app.include_router(metrics.router, dependencies=named)
    app.state.addresses = [
        route
        for router in (memories, operations, sync, map_points, metrics)
        for route in router.router.routes
    ]
    # The last that is added is passed first.
    app.before += [
        partial(Direct, routers=(memories.router, operations.router), service=service),
        partial(Guard, token=token, folder=store.folder, options=options, metrics=app.state.metrics),
    ]
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    if (PAGE / "index.html").exists():
        app.router.routes.append(_Page("/", StaticFiles(directory=PAGE, html=True)))
    app.openapi = lambda: openapi(app, options, token=token is not None)  # type: ignore[method-assign]
    return app


class _Application(FastAPI):
    """The framework's, behind what requests pass before any of it.

    Attributes:
        before: make what is passed before; the last is passed first.
    """

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.before: list[Callable[[ASGIApp], ASGIApp]] = []

    def build_middleware_stack(self) -> ASGIApp:
        """As of the base class, without its answers to what nobody foresaw: those are the guard's."""
        found = super().build_middleware_stack()
        if isinstance(found, ServerErrorMiddleware):
            found = found.app
        for make in self.before:
            found = make(found)
        return found


def _metrics(service: Service) -> Metrics | None:
    """None without ``prometheus_client``: ``/metrics`` then says what is missing."""
    try:
        return Metrics(service)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "prometheus_client":
            return None
        raise


class _Page(Mount):
    """The files of the page, which stand for no address below ``/api``."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As of the base class."""
        if scope["path"].startswith("/api/"):
            return Match.NONE, {}
        match, found = super().matches(scope)
        return match, dict(found)


async def _refused(request: Request, error: Exception) -> Response:
    """What the router refuses: an unknown address, another method."""
    assert isinstance(error, HTTPException)
    name = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
    message = "there is nothing at this address" if error.status_code == 404 else str(error.detail)
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    if error.status_code == 405:
        headers["allow"] = ", ".join(sorted(_methods(request))) or headers.get("allow", "GET, HEAD")
    return problem_answer(Problem(error.status_code, name, message, headers=headers))


def _methods(request: Request) -> set[str]:
    """What the address of a request takes, by all of its routes."""
    found: set[str] = set()
    for route in request.app.state.addresses:
        if route.path_regex.match(request.url.path):
            found |= route.methods or set()
    return found


async def _invalid(request: Request, error: Exception) -> Response:
    """Wrong values in the address."""
    assert isinstance(error, RequestValidationError)
    return problem_answer(invalid(list(error.errors()), request.app.state.service.store.folder))
