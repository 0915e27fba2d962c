"""The OpenAPI document with request bodies, limits and error responses."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from memory.serve.openapi.models import model_of
from memory.serve.openapi.requests import BODIES
from memory.serve.openapi.responses import ErrorAnswer
from memory.serve.options import ServeOptions

_REFERENCE = "#/components/schemas/{model}"
#: Possible error responses of all requests.
_ANY = {
    400: "The body is not valid JSON, or the host name is unknown",
    403: "The request comes from another web page, or the store is read-only",
    409: "The store is in use by another connection, or has changed meanwhile",
    413: "The request is too large",
    422: "A value is invalid; the message names it",
    429: "Too many requests",
    500: "Internal error; see the log of the service",
    503: "The service is busy or shutting down",
    507: "The disk is full; nothing was stored",
}
_TOKEN = {401: "The token is missing or wrong"}
_BODY = {408: "The body did not arrive in time", 415: "The body is not declared as JSON"}
_NAMED = {404: "No memory has the id"}
_HEADERS = {
    "401": {"WWW-Authenticate": {"schema": {"type": "string"}}},
    "429": {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds"}},
}


def answers(record: type, *, named: bool = False) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses`` of a route; ``named`` adds the error for unknown memory ids."""
    found: dict[int | str, dict[str, Any]] = {200: {"model": model_of(record)}}
    return found | {404: {"description": _NAMED[404]}} if named else found


def openapi(app: FastAPI, options: ServeOptions, *, token: bool) -> dict[str, Any]:
    """Return the cached schema of a service.

    Args:
        app: application with all routes.
        options: limits.
        token: True if requests need a token.
    """
    if app.openapi_schema is not None:
        return app.openapi_schema
    schema = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
    models = [(model, "validation") for model in (*BODIES.values(), model_of(ErrorAnswer))]
    _, definitions = models_json_schema(models, ref_template=_REFERENCE)  # type: ignore[arg-type]
    components = schema.setdefault("components", {}).setdefault("schemas", {})
    components.pop("HTTPValidationError", None)
    components.pop("ValidationError", None)
    components.update(definitions.get("$defs", {}))
    _limit(components, options)
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            if method == "post":
                content = _content(BODIES[path].__name__)
                operation["requestBody"] = {"required": True, "content": content}
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "limit":
                    parameter["schema"].setdefault("maximum", options.max_page)
            _refusals(operation, method, token=token)
    if token:
        schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"token": []}]
    app.openapi_schema = schema
    return schema


def _limit(components: dict[str, Any], options: ServeOptions) -> None:
    components["AddBody"]["properties"]["memories"]["maxItems"] = options.max_batch
    for name in ("ForgetBody", "MarkBody"):
        components[name]["properties"]["ids"]["maxItems"] = options.max_batch
    for name in ("QueryBody", "AskBody"):
        components[name]["properties"]["k"]["maximum"] = options.max_k


def _refusals(operation: dict[str, Any], method: str, *, token: bool) -> None:
    """Add all possible error responses to an operation."""
    responses = operation["responses"]
    expected = _ANY | (_TOKEN if token else {}) | (_BODY if method == "post" else {})
    for status, description in expected.items():
        responses[str(status)] = {"description": description}
    for status, response in responses.items():
        if int(status) >= 400:
            response["content"] = _content("ErrorAnswer")
            if status in _HEADERS:
                response["headers"] = _HEADERS[status]
    operation["responses"] = dict(sorted(responses.items()))


def _content(model: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REFERENCE.format(model=model)}}}
