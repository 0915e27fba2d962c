"""``/metrics`` for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from memory.serve.errors import ServiceError
from memory.serve.service import ServiceOf

router = APIRouter()
#: Content type of the Prometheus text format.
_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@router.get("/metrics", include_in_schema=False)
async def metrics(request: Request, service: ServiceOf) -> Response:
    """Return the metrics; raise ``ServiceError`` without ``prometheus_client``."""
    found = request.app.state.metrics
    if found is None:
        raise ServiceError(
            501, "not_installed", "metrics need prometheus_client. Install it: pip install 'sparsight[serve]'"
        )
    return Response(await service.work(found.text), headers={"content-type": _TYPE})
