"""``perceive live``: detect, track and remember while scans arrive."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from perception.cli.live.options import add_live_options, address_of, open_source
from perception.cli.live.publishing import predict_s, published
from perception.cli.live.records import Records, Writer
from perception.cli.live.status import LiveRemarks, StatusLines
from perception.cli.records import FolderRecords
from perception.cli.scans.options import transform_of
from perception.cli.scans.surroundings import Surroundings
from perception.detector import Detector
from perception.io.poses import ScanPose
from perception.io.transform import ScanTransform
from perception.live import Arrival, Figures, LiveRun, Sink
from perception.live.health import HealthServer
from perception.live.remembering import open_memory
from sparse_core.common.service_manager import ServiceManager


def add_parser(commands: Any) -> None:
    """Declare the options."""
    add_live_options(commands, run)


def run(options: argparse.Namespace) -> int:
    """Run until the source ends, time is up, or SIGINT or SIGTERM; the exit status is 1 if scans failed."""
    if options.seconds is not None and not options.seconds > 0:
        raise ValueError(f"--for must be a positive number of seconds, got {options.seconds}")
    if options.rate is not None and not options.rate > 0:
        raise ValueError(f"--rate must be a positive number, got {options.rate}")
    if options.predict is not None and not 0 <= options.predict < float("inf"):
        raise ValueError(f"--predict must be a number of milliseconds from 0, got {options.predict}")
    options.paths = [Path(options.source)]
    say, manager = LiveRemarks(), ServiceManager()
    transform = transform_of(options)
    with ExitStack() as stack:
        stack.callback(manager.close)
        surroundings = Surroundings(options, transform, recorded_poses=True)
        source = open_source(options, transform, surroundings, stack, say)
        detector = Detector.from_pretrained(
            options.weights, device=options.device, precision=options.precision
        )
        detector.warmup()
        if options.keep_warm:
            stack.enter_context(detector.keep_warm())
        figures = Figures()
        pulses = [manager.alive]
        if options.health is not None:
            host, port = address_of("--health", options.health)
            health = HealthServer(figures, host=host, port=port)
            stack.callback(health.close)
            pulses.append(health.alive)

        def alive() -> None:
            for pulse in pulses:
                pulse()

        live = LiveRun(
            source, detector, sinks=_sinks(options, surroundings, figures, stack, transform, say),
            figures=figures,
            pose_of=_poses(options, surroundings), queue=options.queue, rate_hz=options.rate, say=say,
            alive=alive,
        )  # fmt: skip
        status = StatusLines(figures, as_json=options.json, on_line=manager.status)
        with _stop_on_signal(live.stop, options.seconds):
            manager.ready(f"scans of {source.name}")
            status.start()
            try:
                live.run()
            finally:
                manager.stopping()
                status.end()
    return 1 if figures.unreadable else 0


def _sinks(
    options: argparse.Namespace,
    surroundings: Surroundings,
    figures: Figures,
    stack: ExitStack,
    transform: ScanTransform,
    say: Callable[[str], None],
) -> list[Sink]:
    """Create the sinks for records, memory and viewers."""
    writers: list[Writer] = []
    at_end: list[Callable[[], None]] = []
    if options.out is not None:
        records = FolderRecords(options.out, overwrite=options.overwrite, resume=False)
        stack.enter_context(records.open())
        writers.append(lambda record, _: records.write(record))
    if options.memory is not None:
        began = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        memory = open_memory(options.memory, f"{options.source} {began}", map_id=options.map)
        figures.memories = 0

        def remember(record: dict[str, Any], part: int) -> None:
            figures.memories = memory.see(record, part)

        def end() -> None:
            figures.memories = memory.close()

        writers.append(remember)
        at_end.append(end)
    sinks: list[Sink] = (
        [Records(surroundings, writers, at_end, predict_s=predict_s(options))] if writers else []
    )
    return [*published(options, transform, stack, say), *sinks]


def _poses(
    options: argparse.Namespace, surroundings: Surroundings
) -> Callable[[Arrival], ScanPose | None] | None:
    """Return a function to poses of ``--poses``, for scans without a recorded pose."""
    if options.poses is None:
        return None

    def pose_of(arrival: Arrival) -> ScanPose | None:
        if arrival.pose is not None:
            return arrival.pose
        return surroundings.scan_pose(arrival.name, arrival.position, arrival.cloud.timestamp_ns)

    return pose_of


@contextmanager
def _stop_on_signal(stop: Callable[[], None], seconds: float | None) -> Iterator[None]:
    """Call ``stop`` on SIGINT and SIGTERM (in the main thread only), and after some seconds."""
    signals = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, lambda *_: stop()) for number in signals}
    timer = None if seconds is None else threading.Timer(seconds, stop)
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
            # The timer references the source. Its network connection must not be released by a thread that
            # the interpreter kills at exit.
            timer.join()
        for number, handler in before.items():
            signal.signal(number, handler)
