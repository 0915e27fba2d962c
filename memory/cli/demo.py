"""``recall demo``: quick start with two simulated drives that ship with the package."""

from __future__ import annotations

import argparse
import gzip
import io
import shlex
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout
from importlib.resources import files
from pathlib import Path
from typing import Any

from memory import Filter, MemoryStore
from memory.cli.console import add_command, counted, print_json, say
from memory.picture import draw_map
from memory.questions import Questions
from memory.questions.replying import reply
from sparse_core.common.files import write_file

MAP = "town"
QUESTIONS = (
    "where is the cyclist?",
    "how many pedestrians were there yesterday?",
    "how often was a car seen?",
    "what changed since 2026-01-06?",
)

#: ``main`` of ``recall``.
Main = Callable[[Sequence[str]], int]


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "demo", run, store=False)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("sparsight-demo"),
        help="folder for the store and the map picture (default: sparsight-demo)",
    )


def run(options: argparse.Namespace) -> int:
    """Import both days, merge duplicates, ask questions and draw a map."""
    with redirect_stdout(io.StringIO()) if options.json else nullcontext():
        shown = _show(options.out, options.main, ["-q"] if options.verbosity < 0 else [])
    if options.json:
        print_json(shown)
    return 0


def _show(out: Path, main: Main, quiet: Sequence[str]) -> dict[str, Any]:
    folder, picture = out / MAP, out / "town.png"
    days = _write_days(out)
    say("A robot drove through a small simulated town on two mornings. Overnight, cars came, left and moved.")
    say(f"`perceive track` wrote what it saw to {' and '.join(map(str, days))}\n")
    for day in days:
        _command(main, "import", f"{folder}", f"{day}", "--map", MAP, "--recording", day.stem, *quiet)
    with MemoryStore.open(folder) as store:
        before = len(store)
        store.consolidate()
        say(f"$ recall consolidate {shlex.quote(str(folder))}")
        say(f"{counted(before)} before, {len(store):,} now: observations of the same object were merged\n")
        questions, answers = Questions(store), {}
        for question in QUESTIONS:
            say(f"$ recall ask {shlex.join([f'{folder}', question])} --now newest")
            answers[question] = reply(questions, questions.understand(question, store.newest_ns)).sentence
            say(f"{answers[question]}\n")
        memories = store.find(Filter(), vectors=False)
        gone = sorted(
            memory.id or 0 for memory in memories if memory.state == "gone" and memory.label == "Car"
        )
    for id in gone[:1]:
        _command(main, "explain", f"{folder}", f"{id}", *quiet)
    draw_map(picture, memories, title=f"{len(memories)} memories of two mornings")
    say(f"{picture} shows the memories from above; crosses mark objects that are gone.")
    say("Next steps:")
    for command in (
        ["recall", "query", f"{folder}", "--near", "35", "-17", "--radius", "5"],
        ["recall", "serve", f"{folder}"],
        ["recall", "ask", f"{folder}", "YOUR QUESTION"],
    ):
        extra = "  # web page; needs: pip install 'sparsight[serve]'" if "serve" in command else ""
        say(f"  {shlex.join(command)}{extra}")
    return {
        "store": f"{folder}",
        "picture": f"{picture}",
        "memories": len(memories),
        "answers": answers,
        "gone": gone,
    }


def _command(main: Main, *words: str) -> None:
    """Print a command and run it."""
    say(f"$ recall {shlex.join(words)}")
    status = main(words)
    say("")
    if status:
        raise SystemExit(status)


def _write_days(out: Path) -> list[Path]:
    """Write the records of each day to a file."""
    text = gzip.decompress((files("memory") / "assets" / "two-days.jsonl.gz").read_bytes()).decode()
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for number in (1, 2):
        lines = [
            line
            for line in text.splitlines(keepends=True)
            if line.startswith(f'{{"frame": "day{number - 1}-')
        ]
        path = out / f"day-{number}.jsonl"
        write_file(path, "".join(lines))
        written.append(path)
    return written
