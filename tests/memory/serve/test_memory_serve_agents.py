"""What a language model is told of the tools, by a validator of schemas; and tools of other packages."""

from __future__ import annotations

import base64
import io
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import numpy as np
import pytest
import tomllib
from matplotlib.image import imread
from mcp import Client

from memory import Memory, MemoryStore
from memory.serve.mcp.extensions import GROUP, further_tools
from memory.serve.mcp.server import create_tool_server

#: What a client of today shows, and what a model can take in.
LONGEST_DESCRIPTION = 1000


@pytest.fixture
def declared(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Function that declares tools as an installed package does, ahead of whatever is installed."""
    (tmp_path / "installed").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "installed"))

    def declare(name: str, entry: str) -> None:
        folder = tmp_path / "installed" / f"{name}-0.0.1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0.1\n")
        (folder / "entry_points.txt").write_text(f"[{GROUP}]\n{entry}\n")

    return declare


@pytest.fixture
def detection(repository: Path, declared: Callable[[str, str], None]) -> None:
    """What pyproject.toml says of this package is what is installed, if it was installed long ago too."""
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    ((name, value),) = project["entry-points"][GROUP].items()
    declared(project["name"], f"{name} = {value}")


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    folder = tmp_path / "scans"
    (folder / "day").mkdir(parents=True)
    points = np.random.default_rng(0).uniform([0, -9, -2, 0], [30, 9, 0, 1], (500, 4)).astype(np.float32)
    np.save(folder / "day/one.npy", points)
    (folder / "damaged.bin").write_bytes(b"123")
    np.save(tmp_path / "outside.npy", points)
    return folder


def asked(tmp_path: Path, scans: Path | None, work: Any) -> None:
    """Ask a server in this process, by the protocol's own client."""

    async def run() -> None:
        with MemoryStore.open(tmp_path / "store", dim=3) as store:
            store.add([Memory(time_ns=1, label="Mug", position=(1, 2, 0))])
            async with Client(create_tool_server(store, scans=scans)) as client:
                await work(client)

    anyio.run(run)


def test_schemas_are_valid_and_say_what_everything_is(detection: None, scans: Path, tmp_path: Path) -> None:
    async def work(client: Any) -> None:
        tools = (await client.list_tools()).tools
        assert {"detect_objects", "list_scans", "last_seen", "picture", "forget"} <= {
            tool.name for tool in tools
        }
        for tool in tools:
            assert 20 < len(tool.description) < LONGEST_DESCRIPTION, tool.name
            assert tool.description.strip()[-1] in ".?'", tool.name
            schema = tool.input_schema
            jsonschema.Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object"
            assert schema["additionalProperties"] is False
            assert set(schema.get("required", ())) <= set(schema["properties"])
            for name, part in schema["properties"].items():
                assert part["description"], (tool.name, name)
                assert {"type", "anyOf", "enum"} & set(part), (tool.name, name)
                if "default" in part:
                    jsonschema.validate(part["default"], part)
            jsonschema.Draft202012Validator.check_schema(tool.output_schema)
            assert tool.annotations.read_only_hint is (tool.name not in ("add_note", "forget", "undo"))

    asked(tmp_path, scans, work)


@pytest.mark.parametrize(
    ("tool", "right", "wrong"),
    [
        ("near", {"x": 1, "y": 2, "radius_m": 3}, {"x": 1, "y": 2, "radius_m": -3}),
        ("query", {"text": "mug", "order": "recency", "k": 5}, {"order": "best"}),
        ("forget", {"ids": [1]}, {"ids": []}),
        (
            "detect_objects",
            {"file": "day/one.npy", "min_score": 0.5},
            {"file": "day/one.npy", "min_score": 2},
        ),
        ("between", {"start": "yesterday", "end": "now"}, {"start": "yesterday"}),
    ],
)
def test_the_schema_and_the_server_agree(
    tool: str, right: Any, wrong: Any, detection: None, scans: Path, tmp_path: Path
) -> None:
    async def work(client: Any) -> None:
        (schema,) = (each.input_schema for each in (await client.list_tools()).tools if each.name == tool)
        jsonschema.validate(right, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)
        assert (await client.call_tool(tool, wrong)).is_error

    asked(tmp_path, scans, work)


def test_a_scan_is_looked_at(detection: None, scans: Path, tmp_path: Path, repository: Path) -> None:
    if not (repository / "perception/weights/pointpillars-kitti.safetensors").is_file():
        pytest.skip("no shipped weights in this checkout")

    async def work(client: Any) -> None:
        answer = await client.call_tool("detect_objects", {"file": "day/one.npy", "picture": False})
        assert not answer.is_error, answer.content
        told = answer.structured_content
        assert (told["file"], told["points"], told["objects"]) == ("day/one.npy", 500, [])
        assert told["sentence"] == "No objects found in day/one.npy."

    asked(tmp_path, scans, work)


@pytest.mark.slow
def test_objects_of_a_scan_and_a_picture(
    detection: None, scans: Path, tmp_path: Path, repository: Path
) -> None:
    if not (repository / "perception/weights/pointpillars-kitti.safetensors").is_file():
        pytest.skip("no shipped weights in this checkout")
    from perception.data.sample import sample_frames
    from perception.io.point_cloud import save_point_cloud

    frame = sample_frames()[-1]
    save_point_cloud(scans / "street.bin", frame.cloud)

    async def work(client: Any) -> None:
        async def ask(name: str, **arguments: Any) -> Any:
            answer = await client.call_tool(name, arguments)
            assert not answer.is_error, answer.content
            schema = next(
                tool.output_schema for tool in (await client.list_tools()).tools if tool.name == name
            )
            jsonschema.validate(answer.structured_content, schema)
            return answer

        there = (await ask("list_scans")).structured_content
        assert there == {"scans": ["damaged.bin", "street.bin"], "scan_count": 2, "folders": ["day"]}
        assert (await ask("list_scans", folder="day")).structured_content["scans"] == ["day/one.npy"]
        answer = await ask("detect_objects", file="street.bin")
        told = answer.structured_content
        text, image = answer.content
        assert json.loads(text.text) == told
        assert told["points"] == len(frame.cloud)
        assert {"Car", "Pedestrian"} <= {found["label"] for found in told["objects"]}
        assert told["sentence"].startswith("Found in street.bin: ")
        nearest = min(told["objects"], key=lambda found: found["distance"])
        assert nearest["distance"] == pytest.approx(np.hypot(nearest["x"], nearest["y"]), abs=0.02)
        picture = imread(io.BytesIO(base64.b64decode(image.data)))
        assert (image.mime_type, picture.ndim) == ("image/png", 3)
        assert len(answer.content[1].data) < 1_000_000
        alone = await ask("detect_objects", file="street.bin", min_score=0.9, picture=False)
        assert len(alone.content) == 1
        assert 0 < len(alone.structured_content["objects"]) < len(told["objects"])

    asked(tmp_path, scans, work)


def test_nothing_outside_of_the_folder_is_read_or_named(detection: None, scans: Path, tmp_path: Path) -> None:
    (scans / "link.npy").symlink_to(tmp_path / "outside.npy")

    async def work(client: Any) -> None:
        for tool, name, words in (
            ("detect_objects", "../outside.npy", "outside of the folder"),
            ("detect_objects", str(tmp_path / "outside.npy"), "outside of the folder"),
            ("detect_objects", "link.npy", "outside of the folder"),
            ("detect_objects", "none.npy", "none.npy"),
            ("detect_objects", "damaged.bin", "damaged.bin"),
            ("list_scans", "..", "outside of the folder"),
            ("list_scans", "none", "no such folder"),
        ):
            answer = await client.call_tool(tool, {"folder" if tool == "list_scans" else "file": name})
            assert answer.is_error
            assert words in answer.content[0].text
            assert str(scans) not in answer.content[0].text

    asked(tmp_path, scans, work)


def test_tools_of_another_package(
    declared: Callable[[str, str], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "installed/spare_tools.py").write_text(
        "def tools(folder):\n"
        "    def battery() -> dict[str, object]:\n"
        '        """How full the battery is."""\n'
        "        return {'volts': 24.5, 'folder': folder.name}\n"
        "    def stats() -> dict[str, object]:\n"
        '        """One that is there already."""\n'
        "        return {}\n"
        "    return [battery, stats]\n"
    )
    declared("spare-tools", "battery = spare_tools:tools\nbroken = spare_tools_missing:tools")

    async def work(client: Any) -> None:
        answer = await client.call_tool("battery", {})
        assert answer.structured_content == {"volts": 24.5, "folder": tmp_path.name}
        assert (await client.call_tool("stats", {})).structured_content["memories"] == 1

    try:
        with caplog.at_level(logging.WARNING):
            asked(tmp_path, tmp_path, work)
    finally:
        sys.modules.pop("spare_tools", None)
    assert "spare_tools_missing" in caplog.text
    assert "tool stats" in caplog.text


def test_without_a_folder_there_are_the_memorys_own(detection: None, tmp_path: Path) -> None:
    async def work(client: Any) -> None:
        assert "detect_objects" not in {tool.name for tool in (await client.list_tools()).tools}

    asked(tmp_path, None, work)
    assert [tool.__name__ for tool in further_tools(tmp_path)][:2] == ["list_scans", "detect_objects"]
