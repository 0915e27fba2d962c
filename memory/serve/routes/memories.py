"""Routes for memories: add, list, get, search, ask, explain, export."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import StreamingResponse

from memory.exchange.records import record_of
from memory.plain_values import to_plain
from memory.query import Filter
from memory.serve.answers import JsonAnswer, explanation_answer, kept_answer, memory_answer
from memory.serve.errors import ServiceError
from memory.serve.openapi.document import answers
from memory.serve.openapi.requests import (
    AddBody,
    AskBody,
    QueryBody,
    at_most,
    memories_of,
    moment,
    plain,
    query_of,
)
from memory.serve.openapi.responses import (
    AddAnswer,
    AskAnswer,
    ExplainAnswer,
    HitsAnswer,
    PageAnswer,
)
from memory.serve.routes.questions import answer, asked_of
from memory.serve.service import ServiceOf, StoreService
from memory.types import Kind, Memory, State

router = APIRouter(prefix="/api")
#: Fields of a query by a vector alone, and maximum hits for the event loop.
_VECTOR, _FEW = frozenset({"embedding", "encoder", "k"}), 32
#: Memory id in an address.
PATH = Path(ge=1, lt=2**63)


@router.post(
    "/memories", summary="Store memories, durably: all of them or none", responses=answers(AddAnswer)
)
async def add(request: Request, service: ServiceOf) -> JsonAnswer:
    """Return the ids once the memories are on disk. With ``observe``, only important ones are stored."""
    return await service.changed(request, AddBody, lambda body: _add(service, body))


def _add(service: StoreService, body: AddBody) -> tuple[dict[str, Any], int | None]:
    store = service.store
    memories = memories_of(body, service.options, {**store.encoders(), "default": store.dim})
    if not body.observe:
        ids = store.add(memories)
        return {"ids": ids}, store.generation
    done = store.observe_logged(memories)
    kept = kept_answer(done.kept)
    found = {"ids": [each["id"] for each in kept], "kept": kept, "displaced": list(done.displaced)}
    return found | {"generation": done.generation}, done.generation


#: Default of the label parameter; never changed.
_ALL: list[str] = []


async def filter_of(
    text: Annotated[str | None, Query(description="words in label or caption")] = None,
    label: Annotated[list[str], Query(description="only these labels")] = _ALL,
    kind: Annotated[list[Kind] | None, Query(description="repeat for several")] = None,
    state: Annotated[list[State] | None, Query(description="repeat for several")] = None,
    map_id: str | None = None,
    min_confidence: Annotated[float, Query(allow_inf_nan=False)] = 0.0,
    marked: bool | None = None,
    moving: Annotated[
        bool | None, Query(description="true: moved when last observed, false: stood; unknown is neither")
    ] = None,
    start: Annotated[str | None, Query(description="first time, ISO 8601 or nanoseconds")] = None,
    end: Annotated[str | None, Query(description="last time; a date includes the whole day")] = None,
    box: Annotated[str | None, Query(description="x0,y0,x1,y1 in metres")] = None,
    circle: Annotated[str | None, Query(description="x,y,radius in metres")] = None,
    area: Annotated[str | None, Query(description="name of an area, see /api/areas")] = None,
) -> Filter:
    """Return the filter of an address.

    Raises:
        ServiceError, ValueError: a part is not right.
    """
    for name, words in (
        ("text", text),
        ("map_id", map_id),
        ("area", area),
        *(("label", each) for each in label),
    ):
        plain(name, words)
    between = None
    if start is not None or end is not None:
        first = -(2**63) if start is None else moment("start", start)
        last = 2**63 - 1 if end is None else moment("end", end, end=True)
        if first > last:
            raise ServiceError(422, "invalid", "start is after end. Swap them", "start")
        between = (first, last)
    place: dict[str, Any] = {"box": _numbers("box", box), "circle": _numbers("circle", circle)}
    return Filter(
        text=text, labels=label or None, kinds=kind, states=state, map_id=map_id,
        min_confidence=min_confidence, marked=marked, moving=moving, between_ns=between,
        area=area, **place,
    )  # fmt: skip


def _numbers(name: str, text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        message = f"{name}: expected numbers separated by commas"
        raise ServiceError(422, "invalid", message, name) from error


FilterOf = Annotated[Filter, Depends(filter_of)]


@router.get("/memories", summary="List memories, a page at a time", responses=answers(PageAnswer))
async def list_memories(
    service: ServiceOf,
    filter: FilterOf,
    order: Literal["newest", "oldest"] = "newest",
    limit: Annotated[int, Query(ge=1)] = 100,
    cursor: Annotated[str | None, Query(max_length=200, description="cursor of the previous page")] = None,
    vectors: bool = False,
    total: Annotated[bool, Query(description="also count all matches")] = False,
) -> JsonAnswer:
    """Return a page of matching memories; pass ``cursor`` of the answer to get the next page."""
    at_most("limit", limit, service.options.max_page)

    def read() -> dict[str, Any]:
        page = service.reading.page(filter, order=order, limit=limit, cursor=cursor, vectors=vectors)
        found: dict[str, Any] = {
            "memories": [memory_answer(memory, vectors=vectors) for memory in page.memories],
            "cursor": page.cursor,
        }
        return found | {"total": service.store.count(filter)} if total else found

    return await service.read(read)


@router.get("/memories/{id}", summary="One memory", responses=answers(Memory, named=True))
async def get(service: ServiceOf, id: Annotated[int, PATH], vectors: bool = False) -> JsonAnswer:
    """Return a memory, optionally with its vectors."""

    def read() -> dict[str, Any]:
        (memory,) = service.store.database.get([id], vectors=vectors)
        return memory_answer(memory, vectors=vectors)

    return await service.read(read)


@router.post(
    "/query",
    summary="Search by similarity, text, place and time",
    responses=answers(HitsAnswer, named=True),
)
async def query(request: Request, service: ServiceOf) -> JsonAnswer:
    """Return the best hits first; with ``aggregate`` also the aggregated vector."""

    def read(body: QueryBody) -> dict[str, Any]:
        wanted = query_of(body, service.options)
        context = None
        if wanted.aggregate and (wanted.embedding is not None or wanted.like is not None):
            found = service.store.context(wanted)
            hits, context = found.hits, found.vector.tolist() if found.hits else None
        else:
            hits = service.store.query(wanted, vectors=False)
        answer = {"hits": to_plain(hits)}
        return answer | {"context": context} if wanted.aggregate else answer

    def at_once(body: QueryBody) -> AbstractContextManager[bool]:
        if body.k > _FEW or body.embedding is None or body.model_fields_set - _VECTOR:
            return nullcontext(False)
        return service.store.at_once(body.encoder)

    return await service.asked(request, QueryBody, read, at_once=at_once)


@router.post("/ask", summary="Ask a question, in words or in parts", responses=answers(AskAnswer, named=True))
async def ask(request: Request, service: ServiceOf) -> JsonAnswer:
    """Answer a question as a sentence and in parts, with the parsed question."""

    def read(body: AskBody) -> dict[str, Any]:
        asked = asked_of(body, service.options, service.store)
        return answer(service.questions, asked, body, most=service.options.max_page)

    return await service.asked(request, AskBody, read)


@router.get(
    "/explain/{id}",
    summary="Why a memory was kept, merged or forgotten",
    responses=answers(ExplainAnswer, named=True),
)
async def explain(service: ServiceOf, id: Annotated[int, PATH]) -> JsonAnswer:
    """Explain why a memory was kept, merged or forgotten; works for forgotten ones too."""

    def read() -> dict[str, Any]:
        found = service.store.explain(id)
        there = service.store.database.present([id])
        return explanation_answer(found, there[0] if there else None)

    return await service.read(read)


@router.get(
    "/export",
    summary="Export memories as JSONL, the oldest first",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "One memory per line",
            "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
        }
    },
)
async def export(service: ServiceOf, filter: FilterOf, vectors: bool = True) -> StreamingResponse:
    """Stream one memory per line, in the format of ``recall import``."""
    portions = service.reading.portions(filter, vectors=vectors)
    # Read the first portion before the answer begins, so that errors still get an error status.
    first = await service.work_aside(next, portions, [])

    async def lines() -> AsyncIterator[bytes]:
        portion: list[Memory] = first
        while portion:
            yield await service.work_aside(_lines, portion, vectors)
            portion = await service.work_aside(next, portions, [])

    headers = {"content-disposition": 'attachment; filename="memories.jsonl"'}
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=headers)


def _lines(memories: list[Memory], vectors: bool) -> bytes:
    records = (record_of(memory, vectors=vectors) for memory in memories)
    return "".join(json.dumps(record) + "\n" for record in records).encode()
