"""``recall add``: store one memory."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.cli.console import UsageError, add_command, print_json, say, split_words
from memory.exchange.detections import EARLIEST_NS
from memory.exchange.times import format_time, parse_time
from memory.persistence.opening import open_checked
from memory.types import KINDS, Memory, check_vector
from sparse_core.common.console import LOG

#: First bytes of an ``.npy`` file.
_NPY = b"\x93NUMPY"


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "add", run)
    parser.add_argument("--label", default="", help="class or name")
    parser.add_argument("--caption", default="", help="searchable description")
    parser.add_argument("--kind", choices=KINDS, default="note", help="kind of memory (default: note)")
    parser.add_argument("--time", default="now", help="ISO 8601, nanoseconds or now (default: now)")
    parser.add_argument(
        "--at",
        nargs="+",
        type=float,
        metavar="M",
        help="x y or x y z in the map, in metres (default: unknown)",
    )
    parser.add_argument(
        "--yaw",
        type=float,
        default=0.0,
        metavar="RAD",
        help="heading, counter-clockwise from +x (default: 0)",
    )
    parser.add_argument("--map", default="default", help="map that --at refers to (default: default)")
    parser.add_argument("--confidence", type=float, default=1.0, help="confidence from 0 to 1 (default: 1)")
    parser.add_argument("--reward", type=float, default=0.0, help="reward of what happened (default: 0)")
    parser.add_argument("--mark", action="store_true", help="protect it from automatic forgetting")
    parser.add_argument("--embedding", metavar="FILE", help="vector: .npy file or JSON list of numbers")
    parser.add_argument("--payload", metavar="JSON", help="further data as a JSON object")
    parser.add_argument("--evidence", default="", help="path or URL of the raw data")
    parser.add_argument("--provenance", default="", help="source of the memory, such as a robot or program")


def run(options: argparse.Namespace) -> int:
    """Store the memory and print its id."""
    folder, _ = split_words(options)
    if options.at is not None and len(options.at) not in (2, 3):
        raise UsageError(f"--at needs two or three numbers (x y or x y z), got {len(options.at)}")
    x, y, z = (0.0, 0.0, 0.0) if options.at is None else (*options.at, 0.0)[:3]
    memory = Memory(
        time_ns=parse_time(options.time),
        position=None if options.at is None else (x, y, z),
        yaw=options.yaw,
        map_id=options.map,
        kind=options.kind,
        label=options.label,
        caption=options.caption,
        embedding=None if options.embedding is None else read_vector(options.embedding),
        confidence=options.confidence,
        reward=options.reward,
        payload=_payload(options.payload),
        evidence=options.evidence,
        provenance=options.provenance,
        marked=options.mark,
    )
    if not (
        memory.label
        or memory.caption
        or memory.payload
        or memory.evidence
        or memory.position is not None
        or memory.embedding is not None
    ):
        raise UsageError("nothing to store. Give at least --label, --caption, --at, --embedding or --payload")
    if memory.time_ns < EARLIEST_NS:
        LOG.warning(
            f"the time is {format_time(memory.time_ns, digits=0)}. --time takes nanoseconds since 1970, not"
            " seconds, or ISO 8601"
        )
    with open_checked(folder, create=False) as database:
        (id,) = database.add([memory])
    if options.json:
        print_json({"id": id})
    else:
        say(f"stored memory {id}")
    return 0


def read_vector(word: str) -> NDArray[np.float32]:
    """Return the vector of a JSON list, an ``.npy`` file or a file with a JSON list."""
    try:
        if word.lstrip().startswith("["):
            return check_vector("embedding", json.loads(word))
        with Path(word).open("rb") as stream:
            if stream.read(len(_NPY)) == _NPY:
                stream.seek(0)
                return check_vector("embedding", np.load(stream, allow_pickle=False))
            stream.seek(0)
            return check_vector("embedding", json.loads(stream.read()))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"--embedding {word}: neither a JSON list of numbers nor an .npy file ({error})"
        ) from error
    except TypeError as error:
        raise ValueError(f"--embedding {word}: not a list of numbers") from error
    except (ValueError, EOFError) as error:
        raise ValueError(f"--embedding {word}: {error}") from error


def _payload(text: str | None) -> dict[str, Any]:
    try:
        found = {} if text is None else json.loads(text)
    except ValueError as error:
        raise ValueError(f"--payload is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"--payload must be a JSON object, got {text}")
    return found
