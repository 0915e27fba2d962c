"""Destinations of Foxglove messages: an MCAP file, or viewers over a WebSocket."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Protocol

from perception.visualise.recording import check_file
from sparse_core.common.files import GrowingFile

#: Most queued messages per viewer; then its oldest are dropped.
_BACKLOG = 64


class Schema(NamedTuple):
    """Schema of a topic's messages; ``message_encoding`` is ``protobuf`` or ``json``."""

    name: str
    encoding: str
    data: bytes
    message_encoding: str


class MessageSink(Protocol):
    """A destination of encoded messages."""

    def add(self, topic: str, schema: Schema, data: bytes, at_ns: int) -> None:
        """Add a message; the schema of a topic never changes."""

    def close(self) -> None:
        """Finish after the last message."""


class McapSink:
    """An MCAP file; the same messages give the same bytes.

    Args:
        path: of the file; an existing file is replaced.

    Raises:
        ImportError: mcap is missing.
        ValueError: the name does not end in .mcap.
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        writer = _import_mcap()
        self._stream = GrowingFile(check_file(path, ".mcap"))
        self._writer = writer(self._stream)
        self._writer.start(profile="", library="sparsight")
        self._channels: dict[str, int] = {}
        self._sent: dict[str, int] = {}

    def add(self, topic: str, schema: Schema, data: bytes, at_ns: int) -> None:
        """Write a message."""
        if topic not in self._channels:
            number = self._writer.register_schema(schema.name, schema.encoding, schema.data)
            self._channels[topic] = self._writer.register_channel(topic, schema.message_encoding, number)
        number = self._sent.get(topic, 0)
        self._sent[topic] = number + 1
        self._writer.add_message(self._channels[topic], at_ns, data, at_ns, number)

    def close(self) -> None:
        """Write the index and close the file."""
        if not self._stream.closed:
            try:
                self._writer.finish()
            finally:
                self._stream.close()


class ServerSink:
    """A server that Foxglove connects to (``ws://HOST:PORT``); slow viewers miss messages.

    Args:
        host: local address to listen on.
        port: 0 for any free port.

    Raises:
        ImportError: the Foxglove SDK is missing.
        OSError: the port is not available.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 8765) -> None:
        self._foxglove = import_foxglove("publishing for Foxglove")
        self._context = self._foxglove.Context()
        try:
            self._server = self._foxglove.start_server(
                name="sparsight", host=host, port=port, context=self._context, message_backlog_size=_BACKLOG
            )
        except Exception as error:
            # The SDK's errors have no common base class.
            raise OSError(
                f"cannot publish on {host} port {port}: {error}. Choose another port, or 0 for any free one"
            ) from error
        self._channels: dict[str, Any] = {}
        #: Address of the server.
        self.address = f"ws://{host}:{self._server.port}"

    def add(self, topic: str, schema: Schema, data: bytes, at_ns: int) -> None:
        """Send a message to all viewers."""
        if topic not in self._channels:
            known = self._foxglove.Schema(name=schema.name, encoding=schema.encoding, data=schema.data)
            self._channels[topic] = self._foxglove.Channel(
                topic, schema=known, message_encoding=schema.message_encoding, context=self._context
            )
        self._channels[topic].log(data, log_time=at_ns)

    def close(self) -> None:
        """Stop the server."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        self._server.stop()


def import_foxglove(what: str) -> Any:
    """Import the Foxglove SDK.

    Raises:
        ImportError: the SDK is missing; the message names ``what`` needs it.
    """
    try:
        import foxglove
        import foxglove.messages
    except ImportError as error:
        raise ImportError(f"{what} needs the Foxglove SDK: pip install 'sparsight[foxglove]'") from error
    return foxglove


def _import_mcap() -> Any:
    try:
        from mcap.writer import Writer
    except ImportError as error:
        raise ImportError("--mcap needs mcap: pip install 'sparsight[foxglove]'") from error
    return Writer
