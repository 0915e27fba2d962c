"""Route that estimates the pose of a scan."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from memory.exchange.detections import is_detections, view_from_frame
from memory.locate.answers import LocateOptions
from memory.serve.answers import JsonAnswer
from memory.serve.errors import ServiceError
from memory.serve.openapi.document import answers
from memory.serve.openapi.requests import LocateBody, at_most, plain
from memory.serve.openapi.responses import LocateAnswer
from memory.serve.service import ServiceOf

router = APIRouter(prefix="/api")


@router.post("/locate", summary="Where a scan was taken", responses=answers(LocateAnswer, named=True))
async def locate(request: Request, service: ServiceOf) -> JsonAnswer:
    """Return the pose of a scan with its probability, or why there is none."""

    def read(body: LocateBody) -> dict[str, Any]:
        plain("map_id", body.map_id)
        at_most("k", body.k, service.options.max_k)
        if not is_detections(body.detections):
            message = "detections: a line of detections.jsonl has boxes, scores and labels"
            raise ServiceError(422, "invalid", message, "detections")
        maps = service.store.maps()
        if body.map_id is not None and body.map_id not in maps:
            raise ServiceError(422, "invalid", f"map_id: the maps are {', '.join(maps)}", "map_id")
        options = LocateOptions(least_probability=body.least_probability, most_candidates=body.k)
        view = view_from_frame(body.detections)
        at_most("boxes", len(view), service.options.max_batch)
        found = service.store.locate(view, map_id=body.map_id, options=options)
        return {"sentence": str(found), **found.to_json()}

    return await service.asked(request, LocateBody, read)
