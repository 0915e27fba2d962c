"""Routes that change the store, and routes for its log and statistics."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from memory.serve.answers import JsonAnswer, consolidated_answer, entry_answer
from memory.serve.errors import ServiceError
from memory.serve.events import Events
from memory.serve.openapi.document import answers
from memory.serve.openapi.requests import (
    ConsolidateBody,
    ForgetBody,
    MarkBody,
    UndoBody,
    at_most,
    moment,
    plain,
)
from memory.serve.openapi.responses import (
    ConsolidateAnswer,
    ForgetAnswer,
    HealthAnswer,
    LogAnswer,
    MarkAnswer,
    StatsAnswer,
    UndoAnswer,
)
from memory.serve.service import ServiceOf

router = APIRouter(prefix="/api")
#: Schema of an event; the data of ``operation`` is an operation of ``/api/log``.
EVENT = {
    "type": "object",
    "required": ["event", "id", "data"],
    "properties": {
        "event": {"enum": ["start", "operation"]},
        "id": {"type": "string", "description": "number of the operation"},
        "data": {"type": "string", "contentMediaType": "application/json"},
        "retry": {"type": "integer", "description": "milliseconds to wait before coming back"},
    },
}
Generation = Annotated[int, Query(ge=0, lt=2**62)]


@router.post("/forget", summary="Forget memories", responses=answers(ForgetAnswer, named=True))
async def forget(request: Request, service: ServiceOf) -> JsonAnswer:
    """Forget memories in one operation, which can be undone unless it is secure."""

    def work(body: ForgetBody) -> tuple[dict[str, Any], int]:
        at_most("ids", len(body.ids), service.options.max_batch)
        plain("reason", body.reason)
        ids = sorted(set(body.ids))
        generation = service.store.forget(ids, secure=body.secure, reason=body.reason)
        found = {"generation": generation, "forgotten": len(ids), "can_be_undone": not body.secure}
        return found, generation

    return await service.changed(request, ForgetBody, work)


@router.post(
    "/mark",
    summary="Mark objects as present, moved, gone or unknown",
    responses=answers(MarkAnswer, named=True),
)
async def mark(request: Request, service: ServiceOf) -> JsonAnswer:
    """Set the state in one operation, which can be undone. Gone objects stay searchable."""

    def work(body: MarkBody) -> tuple[dict[str, Any], int]:
        at_most("ids", len(body.ids), service.options.max_batch)
        plain("why", body.why)
        ids = sorted(set(body.ids))
        at = None if body.at is None else moment("at", body.at)
        generation = service.store.mark(ids, body.state, at_ns=at, why=body.why)
        return {"generation": generation, "marked": len(ids), "state": body.state}, generation

    return await service.changed(request, MarkBody, work)


@router.post("/undo", summary="Undo an operation", responses=answers(UndoAnswer))
async def undo(request: Request, service: ServiceOf) -> JsonAnswer:
    """Undo an operation; the answer has the number of the undo operation."""

    def work(body: UndoBody) -> tuple[dict[str, Any], int]:
        generation = service.store.undo(body.generation)
        return {"generation": generation, "undone": body.generation}, generation

    return await service.changed(request, UndoBody, work)


@router.post(
    "/consolidate",
    summary="Merge duplicate memories and forget those over capacity",
    responses=answers(ConsolidateAnswer),
)
async def consolidate(request: Request, service: ServiceOf) -> JsonAnswer:
    """Merge and forget; each is an operation that can be undone."""

    def work(body: ConsolidateBody) -> tuple[dict[str, Any], int | None]:
        now = None if body.now is None else moment("now", body.now)
        done = service.store.consolidate(now_ns=now)
        found = consolidated_answer(done, service.options.max_page)
        return found, max(done.generations, default=None)

    return await service.changed(request, ConsolidateBody, work)


@router.get("/log", summary="List operations", responses=answers(LogAnswer))
async def log(
    service: ServiceOf,
    after: Annotated[Generation | None, Query(description="operations after this one")] = None,
    before: Annotated[Generation | None, Query(description="the latest operations before this one")] = None,
    limit: Annotated[int, Query(ge=1)] = 100,
) -> JsonAnswer:
    """List operations in order; by default the latest."""
    at_most("limit", limit, service.options.max_page)
    if after is not None and before is not None:
        raise ServiceError(422, "invalid", "after and before exclude each other. Give one of them", "after")

    def read() -> dict[str, Any]:
        latest = service.reading.generation
        start, most = after, limit
        if start is None:
            # Operation numbers have no gaps.
            end = latest + 1 if before is None else min(before, latest + 1)
            start = max(end - 1 - limit, 0)
            most = max(end - 1 - start, 0)
        operations = service.reading.operations(start, most) if most else []
        entries = [entry_answer(each.entry, touched=each.touched, undone=each.undone) for each in operations]
        return {"operations": entries, "generation": latest}

    return await service.read(read)


@router.get("/stats", summary="Sizes, counts, tiers and the last check", responses=answers(StatsAnswer))
async def stats(
    service: ServiceOf,
    check: Annotated[bool, Query(description="check the files for damage, unless checked recently")] = False,
) -> JsonAnswer:
    """Return statistics of the store."""

    def read() -> JsonAnswer:
        found = {
            **service.store.stats().to_json(),
            "dim": service.store.dim,
            "encoders": service.store.encoders(),
            "readonly": service.readonly,
            **service.overview(),
            "tiers": {name: tier.to_json() for name, tier in service.store.tiers().items()},
            "check": service.checked(anew=check),
            "followers": service.feed.followers,
        }
        return JsonAnswer(found)

    return await (service.work_aside if check else service.work)(read)


@router.get("/health", summary="Check that the store answers", responses=answers(HealthAnswer))
async def health(service: ServiceOf) -> JsonAnswer:
    """Read one number from the database."""

    def read() -> dict[str, Any]:
        return {"status": "ok", "generation": service.reading.generation, "readonly": service.readonly}

    return await service.read(read)


@router.get(
    "/events",
    summary="Follow operations",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Endless events: start, then one per operation",
            "content": {"text/event-stream": {"schema": EVENT}},
        }
    },
)
async def events(
    service: ServiceOf,
    after: Annotated[Generation | None, Query(description="also send the operations after this one")] = None,
    last_event_id: Annotated[str | None, Header(max_length=40)] = None,
    token: Annotated[
        str | None, Query(description="alternative to the header, which EventSource cannot send")
    ] = None,
) -> StreamingResponse:
    """Stream server-sent events: ``start``, then one ``operation`` each, with its number as id.

    A client that reconnects sends the last id and gets the operations that it missed.
    """
    start = after
    if last_event_id is not None:
        if not (last_event_id.isascii() and last_event_id.isdecimal()):
            raise ServiceError(422, "invalid", "Last-Event-ID: expected a number", "last_event_id")
        start = min(int(last_event_id), 2**62)
    return Events(service.feed, start)
