"""The tools as a server of the Model Context Protocol, over standard input and output."""

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
    "A robot's long-term memory: what it saw, when and where. Positions are metres in the frame of a map (x"
    " forward or east, y left or north); times are ISO 8601 in UTC. Memories have ids; name them as evidence."
    " A memory that was seen several times has the time of the sight that was kept, and first_seen and"
    " last_seen of all of them; the tool last_seen answers with the latter."
    " 'what' is a label such as Car, some words, or the id of a memory. Start with stats to see the maps and"
    " labels that there are. An answer of 'not remembered' means just that: it does not mean that the thing"
    " never was there."
)

#: Tools that change nothing, and those that do.
READING = (
    "ask", "query", "last_seen", "first_seen", "near", "between", "changed_since", "how_often", "how_many",
    "still_there", "summarise", "similar_situations", "explain", "stats", "picture",
)  # fmt: skip
WRITING = ("add_note", "forget", "undo")
#: Seconds that answers may take after the input has ended.
LAST_ANSWERS_S = 600.0


def create_tool_server(store: MemoryStore, *, scans: Path | None = None) -> Any:
    """The server with its tools, those that change something only where the store may be changed.

    Args:
        store: open; whoever opened it closes it.
        scans: folder that tools of other packages, such as detection, may look into; None leaves them out.

    Returns:
        An ``MCPServer``; ``run("stdio")`` serves.

    Raises:
        ImportError: the package ``mcp`` is not installed.
    """
    try:
        from mcp.server.mcpserver import MCPServer
    except ModuleNotFoundError as error:
        raise ImportError("tools for language models need mcp 2: pip install 'sparsight[mcp]'") from error

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
    tool = Tool.from_function(_told(method, store), name=name, annotations=notes)
    # A misspelt argument is refused, not skipped.
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
    """Serve over standard input and output until the input ends and all that it asked is answered.

    A line that is no message, such as one whose text is no valid Unicode, gets an error as its answer; the
    transport alone would leave its sender waiting.

    Args:
        server: of :func:`create_tool_server`.
        stdin, stdout: lines, and an ``anyio.AsyncFile`` of text, instead of the process's.
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
                # A server ends with its input, and drops what it is still at.
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

        # The package has no public way to give a server its streams.
        lowlevel = server._lowlevel_server
        async with answers, outward, made, anyio.create_task_group() as tasks:
            tasks.start_soon(pass_on)
            tasks.start_soon(send_on)
            await lowlevel.run(outward, made, lowlevel.create_initialization_options())
            tasks.cancel_scope.cancel()


def _refusal(error: Exception) -> Any:
    """The answer to a line that is no message, to its request where that can be told."""
    from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError

    line = error.errors()[0]["input"] if isinstance(error, ValidationError) else None
    try:
        found = json.loads(line) if isinstance(line, str) else line
    except (ValueError, RecursionError):
        found = None
    id = found.get("id") if isinstance(found, dict) else None
    id = id if isinstance(id, str | int) and not isinstance(id, bool) else None
    if found is None:
        said = ErrorData(code=PARSE_ERROR, message="the line is no JSON")
    else:
        said = ErrorData(code=INVALID_REQUEST, message="no valid message; is its text valid Unicode?")
    return JSONRPCError(jsonrpc="2.0", id=id, error=said)


def _told(method: Callable[..., dict[str, Any]], store: MemoryStore) -> Callable[..., dict[str, Any]]:
    """A tool whose times are readable and whose errors a model can act upon."""
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
    """An answer with a picture: both are content, and the answer is structured too."""
    from mcp_types import CallToolResult, ImageContent, TextContent

    image = ImageContent(type="image", data=base64.b64encode(png).decode(), mime_type="image/png")
    text = TextContent(type="text", text=json.dumps(found))
    return CallToolResult(content=[text, image], structured_content=found)


def readable(value: Any) -> Any:
    """JSON with ISO 8601 instead of nanoseconds: ``time_ns`` becomes ``time``."""
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
