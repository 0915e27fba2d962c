"""Recordings: ROS 2 bags (a folder with metadata.yaml, or one .db3 file), ROS 1 bags and MCAP files.

They are streamed, one message or chunk at a time. ROS need not be installed: ``rosbags`` reads ROS bags,
``mcap`` reads MCAP files of any writer.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from perception.errors import DataError
from perception.io.bounded import BoundedReader

#: Suffixes of single files that are recordings, lower case.
BAG_SUFFIXES = (".mcap", ".db3", ".bag")
_INSTALL = "pip install 'sparsight[ros]'"
_MOST_CHARACTERS = 1000
#: Old names of ROS 1 types with the same encoding.
_RENAMED = {"tf/msg/tfMessage": "tf2_msgs/msg/TFMessage"}


class Topic(NamedTuple):
    """A topic of a recording.

    Attributes:
        name: such as ``/points``.
        type: message type, as in ROS 2 (``sensor_msgs/msg/PointCloud2``) or Foxglove
            (``foxglove.PointCloud``).
        encoding: message encoding: ``cdr`` (ROS 2), ``ros1``, ``protobuf``, ``json`` or another.
        size: number of messages.
    """

    name: str
    type: str
    encoding: str
    size: int


class BagMessage(NamedTuple):
    """A message as stored.

    Attributes:
        topic: its topic.
        time_ns: time of recording, nanoseconds since the epoch.
        data: bytes in the encoding of the topic.
    """

    topic: Topic
    time_ns: int
    data: bytes


@dataclass(frozen=True, eq=False)
class Bag(ABC):
    """An open recording.

    Attributes:
        path: file or folder.
        topics: topics, sorted by name.
    """

    path: Path
    topics: tuple[Topic, ...]

    @abstractmethod
    def messages(self, names: Collection[str]) -> Iterator[BagMessage]:
        """Stream the messages of some topics in the order of recording.

        Raises:
            DataError: the recording is damaged.
        """

    def topics_of(self, types: Collection[str]) -> list[Topic]:
        """Return the topics with messages of one of the types."""
        return [topic for topic in self.topics if topic.type in types and topic.size]

    def described(self) -> str:
        """Return the topics as text, for messages."""
        return join_names(f"{topic.name} ({topic.type}, {topic.size})" for topic in self.topics) or "none"


def join_names(names: Iterable[str]) -> str:
    """Join names for a message, limited in length, because damaged recordings have huge names."""
    text = ", ".join(names)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} …"


def is_bag(path: Path) -> bool:
    """Return True if a path looks like a recording, by its suffix or its metadata.yaml."""
    return path.suffix.lower() in BAG_SUFFIXES if not path.is_dir() else (path / "metadata.yaml").is_file()


@contextmanager
def open_bag(path: str | Path) -> Iterator[Bag]:
    """Open a recording and close it afterwards.

    Args:
        path: folder of a ROS 2 bag, or an .mcap, .db3 or .bag (ROS 1) file.

    Raises:
        DataError: the recording is missing, damaged, cut off, or of another kind.
        ImportError: a library is missing; the message has the pip command.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: no such recording. Check the path.")
    if not is_bag(path):
        raise DataError(
            f"{path}: not a recording. Name an .mcap, .db3 or .bag (ROS 1) file, or the folder of a ROS 2 bag"
            " with its metadata.yaml."
        )
    opened = {".mcap": _open_mcap, ".bag": _open_rosbag1} if path.is_file() else {}
    with opened.get(path.suffix.lower(), _open_rosbag2)(path) as bag:
        yield bag


@dataclass(frozen=True, eq=False)
class _RosBag(Bag):
    reader: Any

    def messages(self, names: Collection[str]) -> Iterator[BagMessage]:
        topics = {topic.name: topic for topic in self.topics}
        chosen = [connection for connection in self.reader.connections if connection.topic in names]
        if not chosen:
            return
        with _damage(self.path):
            for connection, time_ns, data in self.reader.messages(chosen):
                yield BagMessage(topics[connection.topic], time_ns, data)


@contextmanager
def _open_rosbag2(path: Path) -> Iterator[Bag]:
    try:
        from rosbags.rosbag2 import Reader
    except ImportError as error:
        raise ImportError(f"reading ROS 2 bags needs rosbags: {_INSTALL}") from error
    with _damage(path):
        reader = Reader(path)
        reader.open()
    with _opened(path, reader, lambda one: getattr(one.ext, "serialization_format", "") or "cdr") as bag:
        yield bag


@contextmanager
def _open_rosbag1(path: Path) -> Iterator[Bag]:
    try:
        from rosbags.rosbag1 import Reader
    except ImportError as error:
        raise ImportError(f"reading ROS 1 bags needs rosbags: {_INSTALL}") from error
    with _damage(path):
        reader: Any = Reader(cast(Any, _BoundedPath(path)))
        reader.open()
    with _opened(path, reader, lambda _: "ros1") as bag:
        yield bag


@contextmanager
def _opened(path: Path, reader: Any, encoding: Callable[[Any], str]) -> Iterator[Bag]:
    try:
        with _damage(path):
            topics = _topics(
                (one.topic, _RENAMED.get(one.msgtype, one.msgtype), encoding(one), one.msgcount)
                for one in reader.connections
            )
        yield _RosBag(path, topics, reader)
    finally:
        reader.close()


class _BoundedPath:
    """The methods of a path that rosbags needs, opening a ``BoundedReader``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def exists(self) -> bool:
        return self.path.exists()

    def open(self, mode: str) -> BoundedReader:
        return BoundedReader(io.FileIO(self.path, mode))


@dataclass(frozen=True, eq=False)
class _McapBag(Bag):
    stream: Any
    indexed: bool

    def messages(self, names: Collection[str]) -> Iterator[BagMessage]:
        from mcap.reader import NonSeekingReader, make_reader

        topics = {topic.name: topic for topic in self.topics}
        if not topics.keys() & set(names):
            return
        with _damage(self.path):
            self.stream.seek(0)
            # Without an index, make_reader would load the whole file to sort it by time.
            reader = make_reader(self.stream) if self.indexed else NonSeekingReader(self.stream)
            for _, channel, message in reader.iter_messages(set(names), log_time_order=self.indexed):
                yield BagMessage(topics[channel.topic], message.log_time, message.data)


@contextmanager
def _open_mcap(path: Path) -> Iterator[Bag]:
    try:
        from mcap.reader import make_reader
    except ImportError as error:
        raise ImportError(f"reading MCAP files needs mcap: {_INSTALL}") from error
    with BoundedReader(io.FileIO(path)) as stream:
        with _damage(path):
            summary = make_reader(stream).get_summary()
            indexed = summary is not None and bool(summary.chunk_indexes) and summary.statistics is not None
            if summary is not None and indexed:
                schemas, channels = summary.schemas, summary.channels
                counts = Counter(summary.statistics.channel_message_counts if summary.statistics else {})
            else:
                schemas, channels, counts = _scanned(stream)
            topics = _topics(
                (one.topic, _type_name(schemas.get(one.schema_id)), one.message_encoding, counts[number])
                for number, one in channels.items()
            )
        yield _McapBag(path, topics, stream, indexed)


def _scanned(stream: Any) -> tuple[dict[int, Any], dict[int, Any], Counter[int]]:
    """Read schemas, channels and counts of a file without an index, from end to end."""
    from mcap.records import Channel, Message, Schema
    from mcap.stream_reader import StreamReader

    schemas, channels, counts = {}, {}, Counter[int]()
    stream.seek(0)
    for record in StreamReader(stream).records:
        if isinstance(record, Schema):
            schemas[record.id] = record
        elif isinstance(record, Channel):
            channels[record.id] = record
        elif isinstance(record, Message):
            counts[record.channel_id] += 1
    return schemas, channels, counts


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Convert a library's errors to a ``DataError`` that names the recording."""
    try:
        yield
    except (DataError, ImportError):
        raise
    except Exception as error:
        # Errors of struct, zstd, SQLite and the libraries have no common base. A damaged length raises
        # MemoryError, a damaged metadata.yaml RecursionError.
        reason = str(error)[:500] or type(error).__name__
        raise DataError(
            f"{path}: damaged or cut off ({reason}). Copy it again, or repair it with 'mcap recover' (MCAP),"
            " 'ros2 bag reindex' (folder) or 'rosbag reindex' (ROS 1)."
        ) from error


def _type_name(schema: Any) -> str:
    """Return ROS 2's name of a type: ``sensor_msgs/PointCloud2`` is ``sensor_msgs/msg/PointCloud2``."""
    name = "" if schema is None else schema.name
    package, slash, rest = name.partition("/")
    return f"{package}/msg/{rest}" if slash and "/" not in rest else name


def _topics(known: Iterable[tuple[str, str, str, int]]) -> tuple[Topic, ...]:
    """Merge connections (name, type, encoding, messages) to topics, sorted by name."""
    found: dict[str, Topic] = {}
    for name, kind, encoding, size in known:
        before = found[name].size if name in found else 0
        found[name] = Topic(name, kind, encoding, before + size)
    if not all(isinstance(name, str) for name in found):
        raise ValueError("a topic has no name")
    return tuple(found[name] for name in sorted(found))
