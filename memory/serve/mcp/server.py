"""MCP server over standard input and output."""

from __future__ import annotations

import base64
import functools
import json
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError, model_validator

from memory.exchange.times import format_time
from memory.serve.errors import misspelt, problem_of
from memory.serve.mcp.extensions import further_tools
from memory.serve.mcp.tools import StoreTools
from memory.store import MemoryStore

_INSTRUCTIONS = (
    "A robot's long-term memory: what it saw, when and where. Positions are in metres in the frame of a map"
    " (x forward or east, y left or north). Times are ISO 8601 in UTC. Cite the ids of memories as evidence."
    " If an object was seen several times, its memory has first_seen and last_seen of all observations, and"
    " the time of one of them. 'what' is a label such as Car, some words, or the id of a memory. Start with"
    " stats to list the maps and labels. If there is no memory of an object, it may still have been there"
    " unseen."
)

#: Read-only tools, and tools that change the store.
READING = (
    "ask", "ask_query", "query", "last_seen", "first_seen", "near", "between", "changed_since", "how_often",
    "how_many", "still_there", "summarise", "similar_situations", "explain", "stats", "picture",
)  # fmt: skip
WRITING = ("add_note", "forget", "undo")
#: Seconds to finish answers after the input has ended.
LAST_ANSWERS_S = 600.0


def create_tool_server(store: MemoryStore, *, scans: Path | None = None) -> Any:
    """Create the server. Tools that change the store are left out if it is read-only.

    Args:
        store: open store; the caller closes it.
        scans: folder that tools of other packages, such as detection, may read; ``None`` for no such tools.

    Returns:
        An ``MCPServer``; serve it with :func:`serve_stdio`.

    Raises:
        ImportError: the package ``mcp`` is not installed.
    """
    try:
        from mcp.server.mcpserver import MCPServer
    except ModuleNotFoundError as error:
        raise ImportError(
            "recall mcp needs the package mcp 2. Install it: pip install 'sparsight[mcp]'"
        ) from error

    methods = StoreTools(store)
    names = (*READING, *(() if store.readonly else WRITING))
    tools = [_tool(getattr(methods, name), store, reading=name in READING) for name in names]
    if scans is not None:
        tools += [_tool(method, store, reading=True) for method in further_tools(scans, taken=names)]
    return MCPServer(
        "recall", title="A robot's memory", instructions=_INSTRUCTIONS, log_level="WARNING",
        version=version("sparsight"), tools=tools,
    )  # fmt: skip


def _tool(method: Callable[..., dict[str, Any]], store: MemoryStore, *, reading: bool) -> Any:
    from mcp.server.mcpserver.tools import Tool
    from mcp_types import ToolAnnotations

    name = method.__name__
    notes = ToolAnnotations(read_only_hint=reading, destructive_hint=name == "forget", open_world_hint=False)
    tool = Tool.from_function(_readable_tool(method, store), name=name, annotations=notes)
    # Refuse misspelled arguments; the package ignores them.
    arguments = tool.fn_metadata.arg_model

    def check_names(given: Any) -> Any:
        for each in set(given) - set(arguments.model_fields) if isinstance(given, dict) else ():
            raise ValueError(f"{each}: {misspelt('argument', each, arguments.model_fields)}")
        return given

    members = {
        "model_config": ConfigDict(extra="forbid"),
        "check_names": model_validator(mode="before")(check_names),
    }
    strict: Any = type(arguments.__name__, (arguments,), members)
    tool.fn_metadata.arg_model = strict
    tool.parameters = strict.model_json_schema(by_alias=True)
    return tool


async def serve_stdio(server: Any, stdin: Any = None, stdout: Any = None) -> None:
    """Serve until the input ends and all requests are answered.

    Invalid lines are answered with an error; the transport alone would leave the sender waiting.

    Args:
        server: from :func:`create_tool_server`.
        stdin, stdout: lines, and an ``anyio.AsyncFile`` of text, instead of those of the process.
    """
    import anyio
    from mcp.server.stdio import stdio_server
    from mcp.shared.message import ServerMessageMetadata, SessionMessage
    from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse

    async with stdio_server(stdin, stdout) as (received, answers):
        inward, outward = anyio.create_memory_object_stream[Any](0)
        made, sent = anyio.create_memory_object_stream[Any](0)
        waiting: Counter[Any] = Counter()
        changed = anyio.Condition()

        async def settle(id: Any) -> None:
            async with changed:
                waiting[id] -= 1
                changed.notify_all()

        async def pass_on() -> None:
            async with received, inward:
                async for message in received:
                    if isinstance(message, Exception):
                        await answers.send(SessionMessage(_refusal(message)))
                        continue
                    if isinstance(message.message, JSONRPCRequest):
                        id = message.message.id
                        waiting[id] += 1
                        unanswered = functools.partial(settle, id)
                        message.metadata = ServerMessageMetadata(on_request_unanswered=unanswered)
                    await inward.send(message)
                # The server drops unfinished requests when its input ends, so wait for them.
                with anyio.move_on_after(LAST_ANSWERS_S):
                    async with changed:
                        while +waiting:
                            await changed.wait()

        async def send_on() -> None:
            async with sent:
                async for message in sent:
                    await answers.send(message)
                    if isinstance(message.message, JSONRPCResponse | JSONRPCError):
                        await settle(message.message.id)

        # The package has no public API for custom streams.
        lowlevel = server._lowlevel_server
        async with answers, outward, made, anyio.create_task_group() as tasks:
            tasks.start_soon(pass_on)
            tasks.start_soon(send_on)
            await lowlevel.run(outward, made, lowlevel.create_initialization_options())
            tasks.cancel_scope.cancel()


def _refusal(error: Exception) -> Any:
    """Return the error for an invalid line, with the id of its request if known."""
    from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError

    line = error.errors()[0]["input"] if isinstance(error, ValidationError) else None
    try:
        found = json.loads(line) if isinstance(line, str) else line
    except (ValueError, RecursionError):
        found = None
    id = found.get("id") if isinstance(found, dict) else None
    id = id if isinstance(id, str | int) and not isinstance(id, bool) else None
    if found is None:
        data = ErrorData(code=PARSE_ERROR, message="the line is not valid JSON")
    else:
        data = ErrorData(
            code=INVALID_REQUEST, message="not a valid message. Check that its text is valid Unicode"
        )
    return JSONRPCError(jsonrpc="2.0", id=id, error=data)


def _readable_tool(
    method: Callable[..., dict[str, Any]], store: MemoryStore
) -> Callable[..., dict[str, Any]]:
    """Wrap a tool: ISO times in its answers, and errors without paths."""
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(method)
    def tool(**arguments: Any) -> dict[str, Any]:
        try:
            found = readable(method(**arguments))
        except Exception as error:
            problem = problem_of(error, store.folder)
            if problem is None:
                raise
            raise ToolError(problem.message) from error
        assert isinstance(found, dict)
        png = found.pop("picture", None)
        return found if png is None else _with_picture(found, png)

    return tool


def _with_picture(found: dict[str, Any], png: bytes) -> Any:
    """Return an answer with a picture as MCP content."""
    from mcp_types import CallToolResult, ImageContent, TextContent

    image = ImageContent(type="image", data=base64.b64encode(png).decode(), mime_type="image/png")
    text = TextContent(type="text", text=json.dumps(found))
    return CallToolResult(content=[text, image], structured_content=found)


def readable(value: Any) -> Any:
    """Replace nanoseconds by ISO 8601: ``time_ns`` becomes ``time``."""
    if isinstance(value, list | tuple):
        return [readable(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for name, entry in value.items():
        if name.endswith("_ns") and isinstance(entry, int):
            found[name[:-3]] = format_time(entry)
        elif name == "visits" and isinstance(entry, list):
            found[name] = [[format_time(first), format_time(last), count] for first, last, count in entry]
        elif name.endswith("_ns") and isinstance(entry, list | tuple):
            found[name[:-3]] = [format_time(at) for at in entry]
        elif name.endswith("_ns") and entry is None:
            found[name[:-3]] = None
        else:
            found[name] = readable(entry)
    return found
