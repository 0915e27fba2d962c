"""Routes for areas: list, set and remove."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from memory.areas import Area
from memory.serve.answers import JsonAnswer
from memory.serve.openapi.document import answers
from memory.serve.openapi.requests import AreaBody, RemoveAreaBody, at_most, plain
from memory.serve.openapi.responses import AreaAnswer, AreasAnswer
from memory.serve.service import ServiceOf

router = APIRouter(prefix="/api")


@router.get("/areas", summary="Named parts of the maps", responses=answers(AreasAnswer))
async def areas(service: ServiceOf) -> JsonAnswer:
    """Return the areas by map and name."""
    return await service.read(lambda: {"areas": [_answer(area) for area in service.store.areas()]})


def _answer(area: Area) -> dict[str, Any]:
    places = dict(area.places or {})
    return {
        "name": area.name,
        "map_id": area.map_id,
        "polygon": [list(corner) for corner in area.polygon],
        "places": list(places),
        "points": [list(point) for point in places.values()],
        "radius_m": area.radius_m if places else None,
    }


@router.post("/areas", summary="Name a part of a map", responses=answers(AreaAnswer, named=True))
async def set_area(request: Request, service: ServiceOf) -> JsonAnswer:
    """Set an area in place of one of the same name and map, in one operation, which can be undone."""

    def work(body: AreaBody) -> tuple[dict[str, Any], int]:
        plain("name", body.name)
        plain("map_id", body.map_id)
        at_most("places", len(body.places or ()), service.options.max_batch)
        operation = service.store.set_area(**body.model_dump())
        return {"generation": operation, "name": body.name}, operation

    return await service.changed(request, AreaBody, work)


@router.post("/areas/remove", summary="Remove the name of an area", responses=answers(AreaAnswer, named=True))
async def remove_area(request: Request, service: ServiceOf) -> JsonAnswer:
    """Remove a name, not the memories, in one operation, which can be undone."""

    def work(body: RemoveAreaBody) -> tuple[dict[str, Any], int]:
        operation = service.store.remove_area(body.name, map_id=body.map_id)
        return {"generation": operation, "name": body.name}, operation

    return await service.changed(request, RemoveAreaBody, work)
