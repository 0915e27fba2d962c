"""The FastAPI application."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.routing import Match, Mount
from starlette.staticfiles import StaticFiles

from memory.serve.answers import problem_answer
from memory.serve.direct_routes import DirectRoutes
from memory.serve.errors import Problem, invalid
from memory.serve.forwarding import WriterClient
from memory.serve.guard import Guard
from memory.serve.metrics import Metrics
from memory.serve.names import check_parameters
from memory.serve.openapi.document import openapi
from memory.serve.options import ServeOptions
from memory.serve.routes import areas, locate, map_points, memories, metrics, operations, path, sync
from memory.serve.service import StoreService
from memory.store import MemoryStore

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PAGE = Path(__file__).parent / "page"


def make_app(
    store: MemoryStore, token: str | None, options: ServeOptions, writer: str | None = None
) -> FastAPI:
    """See :func:`memory.serve.create_app`."""
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise ValueError("the token must be non-empty printable ASCII without leading or trailing spaces")
    if options.hosts is None and token is None:
        raise ValueError("a service without a host list needs a token. Set token or options.hosts")
    service = StoreService(store, options, None if writer is None else WriterClient(writer))
    app = _Application(
        title="recall",
        summary="Long-term memory of a robot",
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
    app.include_router(areas.router, dependencies=named)
    app.include_router(locate.router, dependencies=named)
    app.include_router(sync.router, dependencies=named)
    app.state.map_columns = map_points.MapColumns(store.database)
    app.include_router(map_points.router, dependencies=named)
    app.include_router(path.router, dependencies=named)
    app.state.metrics = _metrics(service)
    app.include_router(metrics.router, dependencies=named)
    app.state.addresses = [
        route
        for router in (memories, operations, areas, locate, sync, map_points, metrics)
        for route in router.router.routes
    ]
    # A request passes the last one first.
    app.before += [
        partial(DirectRoutes, routers=(memories.router, operations.router), service=service),
        *service.forwarding(),
        partial(Guard, token=token, folder=store.folder, options=options, metrics=app.state.metrics),
    ]
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    if (PAGE / "index.html").exists():
        app.router.routes.append(_Page("/", StaticFiles(directory=PAGE, html=True)))
    app.openapi = lambda: openapi(app, options, token=token is not None)  # type: ignore[method-assign]
    return app


class _Application(FastAPI):
    """FastAPI behind outer ASGI layers.

    Attributes:
        before: factories of the outer layers; a request passes the last one first.
    """

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.before: list[Callable[[ASGIApp], ASGIApp]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request without the telemetry of FastAPI, which looks for providers in every request."""
        await Starlette.__call__(self, scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        """Build the stack without the error middleware, because the guard answers unexpected errors."""
        found = super().build_middleware_stack()
        if isinstance(found, ServerErrorMiddleware):
            found = found.app
        for make in self.before:
            found = make(found)
        return found


def _metrics(service: StoreService) -> Metrics | None:
    """Return the metrics; ``None`` without ``prometheus_client``."""
    try:
        return Metrics(service)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "prometheus_client":
            return None
        raise


class _Page(Mount):
    """Static files of the page, for all addresses outside ``/api``."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match addresses outside ``/api``."""
        if scope["path"].startswith("/api/"):
            return Match.NONE, {}
        match, found = super().matches(scope)
        return match, dict(found)


async def _refused(request: Request, error: Exception) -> Response:
    """Answer requests with an unknown address or method."""
    assert isinstance(error, HTTPException)
    name = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
    message = (
        "unknown address. /openapi.json lists all addresses"
        if error.status_code == 404
        else str(error.detail)
    )
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    if error.status_code == 405:
        headers["allow"] = ", ".join(sorted(_methods(request))) or headers.get("allow", "GET, HEAD")
    return problem_answer(Problem(error.status_code, name, message, headers=headers))


def _methods(request: Request) -> set[str]:
    """Return the methods of an address."""
    found: set[str] = set()
    for route in request.app.state.addresses:
        if route.path_regex.match(request.url.path):
            found |= route.methods or set()
    return found


async def _invalid(request: Request, error: Exception) -> Response:
    """Answer requests with invalid values in the address."""
    assert isinstance(error, RequestValidationError)
    return problem_answer(invalid(list(error.errors()), request.app.state.service.store.folder))
