"""Three robots in a yard remember what they see, and share it: one of them has no network for an hour.

Each robot is a process with a store of its own. A PostgreSQL server is started (`recall up`, where the extra
`postgres` is installed; else the shared store is a folder), `recall serve` is in front of it, and the robots
send what they saw after each lap. A page shows the shared memory growing, the break and the healing, and
what no robot could have answered alone.

    python demos/fleet.py                   # out/fleet/fleet.html
    python demos/fleet.py --laps 4 --folder # short, without a server
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from yard.page import write_page
from yard.shared import Shared
from yard.world import CUT, LAPS, ROBOTS, Yard

from memory import MemoryStore
from memory.questions import Questions
from memory.questions.replying import ReplyOptions, reply
from memory.questions.understanding import understand
from sparse_core.common.commands import reported_file_errors
from sparse_core.common.table import Table

QUESTIONS = ("where is the trolley?", "how many pallets are there?", "how many doors are there?")


class Robot:
    """A robot's process."""

    def __init__(self, name: str, folder: Path, address: str) -> None:
        self.name, self.folder = name, folder
        command = [sys.executable, "-m", "yard.robot", name, str(folder), address]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent
        )

    def start(self, lap: int, *, network: bool) -> None:
        """Drive a lap."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{lap} {int(network)}\n")
        self._process.stdin.flush()

    def done(self) -> dict[str, Any]:
        """What it says at the end of the lap."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with status {self._process.wait()}")
        told: dict[str, Any] = json.loads(line)
        return told

    def end(self) -> None:
        """Let it finish."""
        self._process.communicate()


def drive(out: Path, laps: int, *, folder: bool, show: bool) -> dict[str, Any]:
    """All laps; what was told and seen of them."""
    console = Console(stderr=True)
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleet-")))
        shared = stack.enter_context(Shared(work, folder=folder))
        console.print(f"shared store: {shared.kind}")
        robots = [Robot(name, work / name, shared.address) for name in ROBOTS]
        for robot in robots:
            stack.callback(robot.end)
        rows = []
        for lap in track(range(laps), "driving", console=console, disable=not show):
            for robot in robots:
                robot.start(lap, network=not (robot.name == "robot-2" and lap in CUT))
            told = [robot.done() for robot in robots]
            merged = shared.consolidate()
            rows.append({"lap": lap, "told": told, "merged": merged, "memories": shared.memories()})
        shared_answers = [shared.ask(question) for question in QUESTIONS]
        for robot in robots:
            robot.end()
        own = {robot.name: _ask(robot.folder) for robot in robots}
        kept = out / "stores"
        shutil.rmtree(kept, ignore_errors=True)
        for robot in robots:
            shutil.copytree(robot.folder, kept / robot.name)
        return {"kind": shared.kind, "laps": rows, "shared": shared_answers, "own": own}


def _ask(folder: Path) -> list[str]:
    """What a robot could have said alone."""
    with MemoryStore.open(folder, readonly=True) as store:
        questions = Questions(store)
        asked = [understand(question, store.newest_ns) for question in QUESTIONS]
        return [reply(questions, each, ReplyOptions()).sentence for each in asked]


def judge(laps: list[dict[str, Any]], yard: Yard) -> dict[str, Any]:
    """What is in the shared store at the end, against what was there."""
    last = laps[-1]
    memories = [memory for memory in last["memories"] if memory["state"] == "present"]
    by_thing: dict[str, int] = {}
    for memory in memories:
        name = memory["payload"]["thing"]
        if name != "trolley":
            by_thing[name] = by_thing.get(name, 0) + 1
    seen = len(by_thing)
    healed = next((row for row in laps if row["lap"] == CUT.stop), None)
    return {
        "things": len(yard.things),
        "seen": seen,
        "once": sum(count == 1 for count in by_thing.values()),
        "by_several": sum(len(memory["payload"]["seen_by"]) > 1 for memory in memories),
        "memories": len(memories),
        "healing_s": None if healed is None else healed["told"][1]["sync_s"],
        "healing_sent": None if healed is None else healed["told"][1]["sent"],
    }


def main() -> int:
    """Drive, judge, write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("out/fleet"), help="folder (default: %(default)s)")
    parser.add_argument("--laps", type=int, default=LAPS, help="of 15 minutes (default: %(default)s)")
    parser.add_argument("--folder", action="store_true", help="share a folder, without a PostgreSQL server")
    parser.add_argument("--json", action="store_true", help="print figures instead of a table")
    options = parser.parse_args()
    if not 1 <= options.laps <= LAPS:
        parser.error(f"--laps must be from 1 to {LAPS}, got {options.laps}")
    options.out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    done = drive(options.out, options.laps, folder=options.folder, show=not options.json)
    figures = judge(done["laps"], Yard()) | {"took_s": time.perf_counter() - started, "store": done["kind"]}
    page = options.out / "fleet.html"
    write_page(page, done, figures, QUESTIONS)
    if options.json:
        print(json.dumps(figures | {"page": str(page)}))
        return 0
    console = Console(width=None if sys.stdout.isatty() else 150)
    rows = [(who, *answers) for who, answers in (*done["own"].items(), ("all together", done["shared"]))]
    console.print(Table(("who", *QUESTIONS), rows, title="What each could say, and all together"))
    console.print(
        f"{figures['seen']} of {figures['things']} standing things are known, {figures['once']} of them by"
        f" one memory; {figures['by_several']} were seen by several robots"
    )
    if figures["healing_s"] is not None:
        sent = figures["healing_sent"]
        console.print(
            f"after an hour without a network robot-2 sent {sent['added']} new memories and {sent['changed']}"
            f" changes in {figures['healing_s']:.2f} s"
        )
    console.print(f"page: {page}")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with reported_file_errors("fleet"):
        sys.exit(main())
