"""Routes for ``recall sync``."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request

from memory.errors import StaleSyncError
from memory.persistence.log.reception import Receipt
from memory.serve.answers import JsonAnswer
from memory.serve.errors import ServiceError
from memory.serve.openapi.document import answers
from memory.serve.openapi.requests import AreaPullBody, AreaSyncBody, PullBody, SyncBody, at_most
from memory.serve.openapi.responses import (
    AreaPullAnswer,
    AreaSyncAnswer,
    PositionAnswer,
    PullAnswer,
    SyncAnswer,
)
from memory.serve.service import ServiceOf
from memory.sync.areas import AreaMessage, areas_for
from memory.sync.outbox import PORTION, Outbox
from memory.sync.wire import batch_json, batch_of, position_json, position_of

router = APIRouter(prefix="/api")


@router.get(
    "/sync/{store}", summary="How far the service has what a store sends", responses=answers(PositionAnswer)
)
async def position(service: ServiceOf, store: Annotated[str, Path(max_length=200)]) -> JsonAnswer:
    """Return the position from which a sender resumes."""
    return await service.read(lambda: position_json(service.inbox.position(store)))


@router.post("/sync", summary="Take what a robot sends, once", responses=answers(SyncAnswer))
async def sync(request: Request, service: ServiceOf) -> JsonAnswer:
    """Store a batch; a repeated batch changes nothing."""

    def work(body: SyncBody) -> tuple[dict[str, Any], int | None]:
        at_most("memories", len(body.batch.get("memories", ())), service.options.max_batch)
        try:
            done: Receipt = service.inbox.receive(batch_of(body.batch))
        except StaleSyncError as error:
            raise ServiceError(409, "stale", str(error)) from error
        return done._asdict(), done.generation

    return await service.changed(request, SyncBody, work)


@router.post("/areas/sync", summary="Take the areas of a robot", responses=answers(AreaSyncAnswer))
async def sync_areas(request: Request, service: ServiceOf) -> JsonAnswer:
    """Set and remove areas as the other store did; names that both changed stay and are listed."""

    def work(body: AreaSyncBody) -> tuple[dict[str, Any], int | None]:
        done = service.inbox.take_areas(AreaMessage.of_json(body.areas))
        return done.to_json(), service.store.generation if done.changed else None

    return await service.changed(request, AreaSyncBody, work)


@router.post("/areas/pull", summary="The areas for a robot", responses=answers(AreaPullAnswer))
async def pull_areas(request: Request, service: ServiceOf) -> JsonAnswer:
    """Return the areas with what the robot's store needs to notice conflicts."""

    def read(body: AreaPullBody) -> dict[str, Any]:
        return {"areas": areas_for(service.store.database, body.name, body.store, body.maps).to_json()}

    return await service.asked(request, AreaPullBody, read)


@router.post("/pull", summary="What others saw that a store lacks", responses=answers(PullAnswer))
async def pull(request: Request, service: ServiceOf) -> JsonAnswer:
    """Return the next batch after a position; null if nothing is new."""

    def read(body: PullBody) -> dict[str, Any]:
        outbox = Outbox(
            service.store.database, body.name, portion=min(PORTION, service.options.max_batch),
            maps=body.maps, shared=True, forked=True,
        )  # fmt: skip
        batch = service.pulls.next(outbox, position_of(body.position), body.maps)
        return {"batch": None if batch is None else batch_json(batch)}

    return await service.asked(request, PullBody, read)
