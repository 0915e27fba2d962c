"""Requests that change the store, and about what was done to it."""

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
#: One server-sent event; the data of ``operation`` is an operation as of ``/api/log``.
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
    """One operation, which can be undone unless it is secure."""

    def work(body: ForgetBody) -> tuple[dict[str, Any], int]:
        at_most("ids", len(body.ids), service.options.max_batch)
        plain("reason", body.reason)
        ids = sorted(set(body.ids))
        generation = service.store.forget(ids, secure=body.secure, reason=body.reason)
        found = {"generation": generation, "forgotten": len(ids), "can_be_undone": not body.secure}
        return found, generation

    return await service.changed(request, ForgetBody, work)


@router.post("/mark", summary="Say that things are gone, or there", responses=answers(MarkAnswer, named=True))
async def mark(request: Request, service: ServiceOf) -> JsonAnswer:
    """One operation, which can be undone; what is gone stays as history and is found."""

    def work(body: MarkBody) -> tuple[dict[str, Any], int]:
        at_most("ids", len(body.ids), service.options.max_batch)
        plain("why", body.why)
        ids = sorted(set(body.ids))
        at = None if body.at is None else moment("at", body.at)
        generation = service.store.mark(ids, body.state, at_ns=at, why=body.why)
        return {"generation": generation, "marked": len(ids), "state": body.state}, generation

    return await service.changed(request, MarkBody, work)


@router.post("/undo", summary="Take an operation back", responses=answers(UndoAnswer))
async def undo(request: Request, service: ServiceOf) -> JsonAnswer:
    """The answer has the operation of doing so, which can be undone in turn."""

    def work(body: UndoBody) -> tuple[dict[str, Any], int]:
        generation = service.store.undo(body.generation)
        return {"generation": generation, "undone": body.generation}, generation

    return await service.changed(request, UndoBody, work)


@router.post(
    "/consolidate",
    summary="Merge memories of the same thing, forget over capacity",
    responses=answers(ConsolidateAnswer),
)
async def consolidate(request: Request, service: ServiceOf) -> JsonAnswer:
    """Each merge and the forgetting are operations that can be undone, as far as the log reaches back."""

    def work(body: ConsolidateBody) -> tuple[dict[str, Any], int | None]:
        now = None if body.now is None else moment("now", body.now)
        done = service.store.consolidate(now_ns=now)
        found = consolidated_answer(done, service.options.max_page)
        return found, max(done.generations, default=None)

    return await service.changed(request, ConsolidateBody, work)


@router.get("/log", summary="What was done, by rising number", responses=answers(LogAnswer))
async def log(
    service: ServiceOf,
    after: Annotated[Generation | None, Query(description="operations after this one")] = None,
    before: Annotated[Generation | None, Query(description="the last operations before this one")] = None,
    limit: Annotated[int, Query(ge=1)] = 100,
) -> JsonAnswer:
    """Without ``after`` and ``before`` the last operations."""
    at_most("limit", limit, service.options.max_page)
    if after is not None and before is not None:
        raise ServiceError(422, "invalid", "after: give after or before, not both", "after")

    def read() -> dict[str, Any]:
        latest = service.reading.generation
        start, most = after, limit
        if start is None:
            # The numbers have no gaps.
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
    check: Annotated[bool, Query(description="check the files now, unless that was just done")] = False,
) -> JsonAnswer:
    """Numbers about the store."""

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


@router.get("/health", summary="Whether the store answers", responses=answers(HealthAnswer))
async def health(service: ServiceOf) -> JsonAnswer:
    """Reads one number from the disk."""

    def read() -> dict[str, Any]:
        return {"status": "ok", "generation": service.reading.generation, "readonly": service.readonly}

    return await service.read(read)


@router.get(
    "/events",
    summary="Follow what happens",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Events with no end: start, and an operation each",
            "content": {"text/event-stream": {"schema": EVENT}},
        }
    },
)
async def events(
    service: ServiceOf,
    after: Annotated[Generation | None, Query(description="tell also what was done after this one")] = None,
    last_event_id: Annotated[str | None, Header(max_length=40)] = None,
    token: Annotated[str | None, Query(description="instead of the header, which EventSource lacks")] = None,
) -> StreamingResponse:
    """Server-sent events: ``start``, then an ``operation`` each with its number as id.

    A client that comes back sends the last id, and is told what it missed.
    """
    start = after
    if last_event_id is not None:
        if not (last_event_id.isascii() and last_event_id.isdecimal()):
            raise ServiceError(422, "invalid", "Last-Event-ID: expected a number", "last_event_id")
        start = min(int(last_event_id), 2**62)
    return Events(service.feed, start)
