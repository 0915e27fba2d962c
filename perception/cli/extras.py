"""Checks for optional packages, made before a command spends seconds on importing PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import PurePath

#: Packages and extra that a command, an option, an option's value, or the suffix of an input file needs.
_Need = tuple[tuple[str, ...], str]
_ONNX: _Need = (("onnx", "onnxscript"), "onnx")
_COMMANDS: dict[str, _Need] = {"simulate": (("open3d",), "simulate"), "push": (("huggingface_hub",), "hub")}
_OPTIONS: dict[str, _Need] = {
    "--parquet": (("pyarrow",), "parquet"),
    "--rerun": (("rerun",), "rerun"),
    "--mcap": (("foxglove", "mcap"), "foxglove"),
    "--show": (("open3d",), "viewers"),
}
_VALUES: dict[tuple[str, str], _Need] = {
    ("--engine", "ray"): (("ray",), "ray"),
    ("--publish", "foxglove"): (("foxglove",), "foxglove"),
    ("--publish", "rerun"): (("rerun",), "rerun"),
    ("--publish", "ros2"): (("zenoh", "rosbags"), "ros2"),
    ("--format", "onnx"): _ONNX,
    ("--format", "onnx-spconv"): (("onnx",), "onnx"),
}
_SUFFIXES: dict[str, _Need] = {
    ".las": (("laspy",), "las"),
    ".laz": (("laspy", "lazrs"), "las"),
    ".bag": (("rosbags",), "ros"),
    ".db3": (("rosbags",), "ros"),
    ".mcap": (("mcap", "rosbags"), "ros"),
    ".pcap": (("dpkt", "velodyne_decoder"), "packets"),
    ".pcapng": (("dpkt", "velodyne_decoder"), "packets"),
}
#: Commands whose words may be scans, and options whose values are written.
_READERS = ("detect", "track", "live", "bench")
_OUTPUTS = ("--mcap", "--rerun", "--out")
_OWN_PROTOCOLS = ("file://", "udp:", "ros2:")


def check_extras(words: Sequence[str]) -> None:
    """Check that the packages for a command line are installed.

    Args:
        words: arguments of ``perceive``; wrong ones are left to the parser.

    Raises:
        ImportError: a package is missing; the message has the pip command.
    """
    if "-h" in words or "--help" in words:
        return
    for subject, (packages, extra) in _needs(words):
        missing = [name for name in packages if find_spec(name) is None]
        if missing:
            raise ImportError(f"{subject} needs {' and '.join(missing)}: pip install 'sparsight[{extra}]'")


def _needs(words: Sequence[str]) -> Iterator[tuple[str, _Need]]:
    command = words[0] if words else ""
    if command in _COMMANDS:
        yield command, _COMMANDS[command]
    if command == "export" and not any(word.startswith("--format") for word in words):
        yield "--format onnx", _ONNX
    option = ""
    for word in words[1:]:
        if word.startswith("--"):
            option, equals, value = word.partition("=")
            if option in _OPTIONS:
                yield option, _OPTIONS[option]
            if not equals:
                continue
        else:
            value = word
        chosen = option, value.partition("=")[0]
        if chosen in _VALUES:
            yield " ".join(chosen), _VALUES[chosen]
        elif command in _READERS and option not in _OUTPUTS:
            yield from _needs_of_input(value)
        option = ""


def _needs_of_input(word: str) -> Iterator[tuple[str, _Need]]:
    suffix = PurePath(word).suffix.lower()
    if suffix in _SUFFIXES:
        yield word, _SUFFIXES[suffix]
    if word.startswith("ros2:"):
        yield word, (("zenoh", "rosbags"), "ros2")
    elif "://" in word and not word.startswith(_OWN_PROTOCOLS):
        yield word, (("fsspec",), "archives")
