"""Requests that go straight to what answers them, past the framework's matching and dependencies."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from memory.serve.names import check_parameters
from memory.serve.service import Service

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

#: What such a handler takes: everything else of its request is in the body, which it reads itself.
_TAKES = ["request", "service"]


class Direct:
    """Calls the handlers of fixed addresses itself; everything else goes on to the application.

    What the framework does for a request takes a third of what a short query takes, and these have nothing
    in their address that it would read. They are still declared with it, for ``/openapi.json``.

    Args:
        app: the application.
        routers: whose routes are looked at: those whose handler takes ``request`` and ``service``.
        service: for the handlers.
    """

    def __init__(self, app: ASGIApp, *, routers: Iterable[APIRouter], service: Service) -> None:
        self._app = app
        self._service = service
        self._routes: dict[tuple[str, str], APIRoute] = {
            (method, route.path): route
            for router in routers
            for route in router.routes
            if isinstance(route, APIRoute) and list(inspect.signature(route.endpoint).parameters) == _TAKES
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request or pass it on."""
        route = None
        if scope["type"] == "http" and not scope.get("root_path"):
            route = self._routes.get((scope["method"], scope["path"]))
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route  # As the framework says it to who counts requests.
        request = Request(scope, receive, send)
        await check_parameters(request)
        answer: Response = await route.endpoint(request, self._service)
        await answer(scope, receive, send)
