"""The tools for language models, asked by the protocol's own client."""

from __future__ import annotations

import base64
import io
import json
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
import pytest
from matplotlib.image import imread
from mcp import Client, StdioServerParameters, stdio_client

from memory.cli import main
from memory.serve.mcp.server import create_tool_server, serve_stdio
from memory.serve.mcp.tools import StoreTools
from memory.store import MemoryStore
from memory.types import Memory

READING = {
    "ask", "ask_query", "query", "last_seen", "first_seen", "near", "between", "changed_since", "how_often",
    "how_many", "still_there", "summarise", "similar_situations", "explain", "stats", "picture",
}  # fmt: skip
HOUR = 3600 * 10**9
START = 490_000 * HOUR


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "robot-store"
    with MemoryStore.open(made, dim=3) as store:
        store.add(
            [
                Memory(time_ns=START, label="Mug", caption="red", position=(1, 2, 0), embedding=[1, 0, 0]),
                Memory(time_ns=START + HOUR, label="Mug", position=(5, 2, 0), embedding=[1, 0.1, 0]),
                Memory(time_ns=START + 2 * HOUR, label="Door", position=(0, 0, 0), embedding=[0, 0, 1]),
            ]
        )
    return made


def with_tools(folder: Path, work: Callable[[Any], Awaitable[None]]) -> None:
    async def run() -> None:
        command = ["-m", "memory.cli", "mcp", str(folder), "--memory-only"]
        async with Client(
            stdio_client(StdioServerParameters(command=sys.executable, args=command))
        ) as client:
            await work(client)

    anyio.run(run)


def test_a_model_can_ask_and_change(folder: Path) -> None:
    async def work(client: Any) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == READING | {"add_note", "forget", "undo"}
        assert all(tool.description for tool in tools.values())
        for tool in tools.values():
            for name, schema in tool.input_schema["properties"].items():
                assert schema.get("description"), (tool.name, name)
        assert tools["last_seen"].annotations.read_only_hint is True
        assert client.server_info.version == version("sparsight")
        assert tools["last_seen"].input_schema["required"] == ["what"]

        async def ask(name: str, **arguments: Any) -> Any:
            answer = await client.call_tool(name, arguments)
            assert not answer.is_error, answer.content
            return answer.structured_content

        seen = await ask("last_seen", what="Mug")
        assert (seen["memory"]["id"], seen["time"]) == (2, "2025-11-24T17:00:00Z")
        assert seen["sentence"].startswith("Mug was last seen on 2025-11-24 17:00:00 UTC")
        assert (await ask("first_seen", what="Mug"))["memory"]["id"] == 1
        assert [hit["memory"]["id"] for hit in (await ask("query", text="red"))["hits"]] == [1]
        assert [hit["memory"]["id"] for hit in (await ask("near", x=5, y=2, radius_m=1))["hits"]] == [2]
        day = await ask("between", start="2025-11-24T16:30:00Z", end="2025-11-24")
        assert [memory["id"] for memory in day["memories"]] == [2, 3]
        new = await ask("changed_since", since="2025-11-24T17:30:00Z")
        assert [memory["id"] for memory in new["new"]] == [3]
        assert (await ask("how_often", what="Mug"))["sightings"] == 2
        assert (await ask("how_many", what="Mug", x=5, y=2, radius_m=1))["memories"] == 1
        told = await ask("ask", question="how many mugs did you see in the last 90 minutes?", now="newest")
        assert (told["question"], told["memories"]) == ("how_many", 1)
        assert (await ask("ask", question="where is the door?"))["memory"]["id"] == 3
        assert (await ask("still_there", what="Door"))["state"] == "unknown"
        assert (await ask("summarise"))["by_label"] == {"Mug": 2, "Door": 1}
        assert (await ask("similar_situations", id=1, k=1))["hits"][0]["memory"]["id"] == 2
        assert (await ask("stats"))["by_label"] == {"Mug": 2, "Door": 1}
        drawn = await client.call_tool("picture", {})
        assert drawn.structured_content == {"map_id": "default", "memories": 3}
        text, image = drawn.content
        assert json.loads(text.text) == drawn.structured_content
        assert image.mime_type == "image/png"
        assert imread(io.BytesIO(base64.b64decode(image.data))).shape[0] > 300
        note = (await ask("add_note", text="the red mug is chipped", label="remark"))["id"]
        assert (await ask("explain", id=note))["status"] == "kept"
        seen = await ask("last_seen", what="remark")
        assert seen["memory"]["position"] is None
        assert "at an unknown place" in seen["sentence"]
        operation = (await ask("forget", ids=[note], reason="wrong"))["operation"]
        assert (await ask("explain", id=note))["status"] == "forgotten"
        await ask("undo", operation=operation)
        assert (await ask("explain", id=note))["memory"]["caption"] == "the red mug is chipped"
        for name, arguments, words in (
            ("explain", {"id": 99}, "ever had the id"), ("undo", {"operation": 99}, "no operation 99"),
            ("near", {"x": 1}, "y"), ("between", {"start": "soon", "end": "now"}, "not a time"),
            ("query", {"k": 1000}, "k"), ("ask", {"question": "?"}, "question is empty"),
            ("query", {"txt": "red"}, "txt"),
        ):  # fmt: skip
            failed = await client.call_tool(name, arguments)
            assert failed.is_error
            text = failed.content[0].text
            assert words in text
            assert str(folder) not in text

    with_tools(folder, work)
    with MemoryStore.open(folder) as store:
        assert len(store) == 4


def test_reading_only_offers_nothing_that_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MemoryStore.open(folder), MemoryStore.open(folder, readonly=True) as store:
        assert {tool.name for tool in create_tool_server(store)._tool_manager.list_tools()} == READING
        # Beside a writer the command can only read; its input ends at once.
        command = ["mcp", str(folder), "--memory-only"]
        for options, status in (["--readonly"], 0), ([], 2):
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
            monkeypatch.setattr(signal, "signal", lambda number, handler: None)
            assert main([*command, *options]) == status


def test_without_the_packages_the_other_commands_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stats", str(folder), "--json"]) == 0
    capsys.readouterr()
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    assert main(["mcp", str(folder)]) == 2
    assert "pip install 'sparsight[mcp]'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve", str(folder)]) == 2
    assert "pip install 'sparsight[serve]'" in capsys.readouterr().err


def test_lines_that_are_no_messages_get_an_answer(folder: Path) -> None:
    """A lone surrogate is JSON, but no text: whoever sent it must not wait for ever."""
    start = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    call = {"name": "query", "arguments": {"text": "\ud800"}}
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": start}),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}),
        "no JSON",
        json.dumps({"jsonrpc": "2.0", "id": 3, "method": "ping"}),
    ]
    told = io.StringIO()

    async def given() -> AsyncIterator[str]:
        for line in lines:
            yield line
        with anyio.fail_after(300):
            while told.getvalue().count("\n") < 4:
                await anyio.sleep(0.01)

    async def serve() -> None:
        await serve_stdio(create_tool_server(store), given(), anyio.wrap_file(told))

    with MemoryStore.open(folder, readonly=True) as store:
        anyio.run(serve)
    answers = [json.loads(line) for line in told.getvalue().splitlines()]
    by_id = {answer["id"]: answer for answer in answers}
    assert "Unicode" in by_id[2]["error"]["message"]
    assert by_id[None]["error"]["code"] == -32700
    assert "result" in by_id[3]


@pytest.mark.parametrize("count", [1, 25])
def test_what_was_asked_just_before_the_input_ended_is_answered(folder: Path, count: int) -> None:
    """As of ``printf ... | recall mcp STORE``: the last line and the end of the input come together."""
    start = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    call = {"name": "ask", "arguments": {"question": "where is the mug?"}}
    lines = [
        {"jsonrpc": "2.0", "id": "start", "method": "initialize", "params": start},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        *({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call} for id in range(count)),
        {"jsonrpc": "2.0", "id": "cancelled", "method": "tools/call", "params": call},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "cancelled"}},
        {"jsonrpc": "2.0", "id": "last", "method": "tools/call", "params": {**call, "name": "stats"}},
    ]
    told = io.StringIO()

    async def given() -> AsyncIterator[str]:
        for line in lines:
            yield json.dumps(line)

    async def serve() -> None:
        with anyio.fail_after(60):
            await serve_stdio(create_tool_server(store), given(), anyio.wrap_file(told))

    with MemoryStore.open(folder, readonly=True) as store:
        anyio.run(serve)
    answered = [json.loads(line)["id"] for line in told.getvalue().splitlines()]
    assert set(answered) - {"cancelled"} == {"start", *range(count), "last"}
    assert len(answered) == len(set(answered))


def test_a_misspelt_argument_is_refused_with_the_nearest(folder: Path) -> None:
    with MemoryStore.open(folder, readonly=True) as store:
        tool = next(
            tool for tool in create_tool_server(store)._tool_manager.list_tools() if tool.name == "query"
        )
        with pytest.raises(ValueError, match=r"lable: unknown argument. Did you mean labels\?"):
            tool.fn_metadata.arg_model.model_validate({"lable": ["Mug"]})


def test_a_structured_query_and_an_area_reach_the_store(folder: Path) -> None:
    with MemoryStore.open(folder) as store:
        store.set_area("hall", box=(0, 0, 2, 3))
        tools = StoreTools(store)
        near = tools.ask_query({"question": "related", "relation": "next to", "beside": "door"})
        assert near["sentence"].startswith("No memories next to Door (memory 3)")
        assert [hit["memory"]["id"] for hit in tools.query(labels=["Mug"], area="hall")["hits"]] == [1]
        assert tools.ask("how many mugs are there?", area="hall")["memories"] == 1
        assert tools.stats()["areas"] == [{"name": "hall", "map_id": "default"}]
        with pytest.raises(ValueError, match="unknown field 'answer'"):
            tools.ask_query({"question": "last_seen", "answer": "here"})
