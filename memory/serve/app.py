"""The service, put together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from memory.serve import memories, operations
from memory.serve.answers import problem_answer
from memory.serve.errors import Problem, invalid
from memory.serve.guard import Guard
from memory.serve.options import ServeOptions
from memory.serve.requests import MODELS
from memory.serve.service import Service
from memory.store import MemoryStore

PAGE = Path(__file__).parent / "page"
_BODIES = {
    "/api/memories": "AddBody",
    "/api/query": "QueryBody",
    "/api/ask": "AskBody",
    "/api/forget": "ForgetBody",
    "/api/undo": "UndoBody",
    "/api/consolidate": "ConsolidateBody",
}
_REFERENCE = "#/components/schemas/{model}"
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["type", "message", "field"],
            "properties": {
                "type": {"type": "string"},
                "message": {"type": "string"},
                "field": {"type": ["string", "null"]},
            },
        }
    },
}


def make_app(store: MemoryStore, token: str | None, options: ServeOptions) -> FastAPI:
    """See :func:`memory.serve.create_app`."""
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise ValueError("the token must be printable ASCII, without spaces at its ends, and not empty")
    if options.hosts is None and token is None:
        raise ValueError("a service that any host may ask for needs a token")
    service = Service(store, options)
    app = FastAPI(
        title="recall",
        summary="A robot's memory.",
        version="1",
        docs_url=None,
        redoc_url=None,
        lifespan=service.running,
        redirect_slashes=False,
    )
    app.state.service = service
    app.include_router(memories.router)
    app.include_router(operations.router)
    app.add_middleware(Guard, token=token, folder=store.folder, options=options)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    if (PAGE / "index.html").exists():
        app.mount("/", StaticFiles(directory=PAGE, html=True))
    app.openapi = lambda: _openapi(app, options, token is not None)  # type: ignore[method-assign]
    return app


async def _refused(request: Request, error: Exception) -> Response:
    """What the router refuses: an unknown address, another method."""
    assert isinstance(error, HTTPException)
    name = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
    message = "there is nothing at this address" if error.status_code == 404 else str(error.detail)
    return problem_answer(Problem(error.status_code, name, message, headers=dict(error.headers or {})))


async def _invalid(request: Request, error: Exception) -> Response:
    """Wrong values in the address."""
    assert isinstance(error, RequestValidationError)
    return problem_answer(invalid(list(error.errors()), request.app.state.service.store.folder))


def _openapi(app: FastAPI, options: ServeOptions, token: bool) -> dict[str, Any]:
    """The schema, with the bodies that are read in threads and the limits of this service."""
    if app.openapi_schema is not None:
        return app.openapi_schema
    schema = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
    _, models = models_json_schema([(model, "validation") for model in MODELS], ref_template=_REFERENCE)
    components = schema.setdefault("components", {}).setdefault("schemas", {})
    components.pop("HTTPValidationError", None)
    components.pop("ValidationError", None)
    components.update(models.get("$defs", {}), Error=_ERROR)
    components["AddBody"]["properties"]["memories"]["maxItems"] = options.max_batch
    components["ForgetBody"]["properties"]["ids"]["maxItems"] = options.max_batch
    for name in ("QueryBody", "AskBody"):
        components[name]["properties"]["k"]["maximum"] = options.max_k
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            if method == "post":
                reference = {"$ref": f"#/components/schemas/{_BODIES[path]}"}
                content = {"application/json": {"schema": reference}}
                operation["requestBody"] = {"required": True, "content": content}
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "limit":
                    parameter["schema"]["maximum"] = options.max_page
            operation["responses"].pop("422", None)
            reference = {"$ref": "#/components/schemas/Error"}
            operation["responses"]["default"] = {
                "description": "It was refused, or failed.",
                "content": {"application/json": {"schema": reference}},
            }
    if token:
        schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"token": []}]
    app.openapi_schema = schema
    return schema
