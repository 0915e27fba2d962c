"""A stand-in of the hub's HTTP interface: repositories, uploads (large files by Git LFS), downloads.

As documented in huggingface.co/docs/hub/api and in the specification of Git LFS's batch API; kept in memory.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hub(ThreadingHTTPServer):
    """Repositories by name, files by path; blobs of LFS by digest."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.blobs: dict[str, bytes] = {}
        self.made: list[dict[str, Any]] = []
        self.address = f"http://127.0.0.1:{self.server_port}"


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub that answers until the end of the block."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, body: Any, status: int = 200, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _missing(self) -> None:
        self._answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")

    def do_POST(self) -> None:
        body = self._body()
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            self.server.made.append(asked)
            self.server.repositories.setdefault(name, {})
            self._answer({"url": f"{self.server.address}/{name}"})
        elif self.path.endswith("/info/lfs/objects/batch"):
            objects = [
                {
                    "oid": entry["oid"],
                    "size": entry["size"],
                    "actions": {"upload": {"href": f"{self.server.address}/lfs/{entry['oid']}"}},
                }
                for entry in json.loads(body)["objects"]
            ]
            self._answer({"transfer": "basic", "objects": objects})
        elif "/preupload/" in self.path:
            files = [
                {
                    "path": entry["path"],
                    "uploadMode": "lfs" if entry["path"].endswith(".safetensors") else "regular",
                    "shouldIgnore": False,
                }
                for entry in json.loads(body)["files"]
            ]
            self._answer({"files": files})
        elif "/commit/" in self.path:
            name = "/".join(self.path.split("/")[3:5])
            files = self.server.repositories[name]
            for line in body.splitlines():
                entry = json.loads(line)
                value = entry["value"]
                if entry["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif entry["key"] == "lfsFile":
                    files[value["path"]] = self.server.blobs[value["oid"]]
            self._answer(
                {"commitUrl": f"{self.server.address}/{name}/commit/{'a' * 40}", "commitOid": "a" * 40}
            )
        else:
            # Cards are checked before a commit.
            self._answer({"errors": [], "warnings": []})

    def do_PUT(self) -> None:
        data, digest = self._body(), self.path.rpartition("/")[2]
        assert hashlib.sha256(data).hexdigest() == digest
        self.server.blobs[digest] = data
        self._answer({})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = self.path.split("?")[0].strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            name = "/".join(parts[2:4])
            if name not in self.server.repositories:
                return self._missing()
            if parts[4:5] == ["tree"]:
                # What is asked from huggingface_hub 2 on.
                return self._answer(
                    [
                        {
                            "type": "file",
                            "path": path,
                            "size": len(data),
                            "oid": hashlib.sha256(data).hexdigest(),
                        }
                        for path, data in self.server.repositories[name].items()
                    ]
                )
            siblings = [{"rfilename": path} for path in self.server.repositories[name]]
            return self._answer(
                {"id": name, "modelId": name, "sha": "a" * 40, "siblings": siblings, "private": True}
            )
        name, path = "/".join(parts[:2]), "/".join(parts[4:])
        if name not in self.server.repositories or path not in self.server.repositories[name]:
            return self._missing()
        data = self.server.repositories[name][path]
        etag = hashlib.sha256(data).hexdigest()
        return self._answer(data, ETag=f'"{etag}"', X_Repo_Commit="a" * 40)
