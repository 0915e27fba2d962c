"""Ray actors as workers, on a cluster or on this machine."""

from __future__ import annotations

import math
from typing import Any

from perception.engines.local import usable_cores
from perception.engines.protocol import Answer, Job, LoadFailed, TaskDone, WorkerLost, WorkerReady


class RayEngine:
    """Workers as Ray actors that share cores and GPUs.

    Args:
        job: job of all workers.
        workers: number of workers; ``None``: one per core, with ``cuda`` one per GPU.
        address: address of a cluster; ``None``: a local one, which ends with this process.
        cuda: each worker needs a GPU, which several workers may share.

    Raises:
        ImportError: Ray is not installed.
        ValueError: less than one worker, no GPU, an unreachable cluster, or more workers than cores.
    """

    def __init__(
        self, job: Job, workers: int | None = None, *, address: str | None = None, cuda: bool = False
    ) -> None:
        try:
            import ray
        except ImportError as error:
            raise ImportError("--engine ray needs Ray: pip install 'sparsight[ray]'") from error
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        self._ray, self._job = ray, job
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        self._began = not ray.is_initialized()
        if self._began and address is None:
            cores = max(usable_cores(), workers or 1)
            ray.init(num_cpus=cores, include_dashboard=False, **quiet)
        elif self._began:
            try:
                ray.init(address=address, **quiet)
            except ConnectionError as error:
                raise ValueError(f"--address {address}: no Ray cluster answers there ({error})") from error
        held = ray.cluster_resources()
        cores, gpus = int(held.get("CPU", 0)), int(held.get("GPU", 0))
        self.workers = workers or max(1, gpus if cuda else cores)
        self._threads = max(1, cores // self.workers)
        try:
            if cuda and not gpus:
                raise ValueError("--device cuda: Ray sees no GPU; use --device cpu")
            if self.workers > cores:
                raise ValueError(f"--workers {self.workers}: the cluster has only {cores} cores")
        except ValueError:
            self.close()
            raise
        share = 1.0 / math.ceil(self.workers / gpus) if cuda else 0.0
        self._actor = ray.remote(num_cpus=self._threads, num_gpus=share)(_Worker)
        self._running: dict[int, Any] = {}
        self._expected: dict[Any, int] = {}

    def start(self, worker: int) -> None:
        """See :class:`perception.engines.protocol.Engine`."""
        self._running[worker] = actor = self._actor.remote(self._job, worker, self._threads)
        self._expected[actor.load.remote()] = worker

    def send(self, worker: int, task: Any) -> None:
        """See :class:`perception.engines.protocol.Engine`."""
        self._expected[self._running[worker].do.remote(task)] = worker

    def receive(self) -> Answer:
        """See :class:`perception.engines.protocol.Engine`."""
        ((first, *_), _) = self._ray.wait(list(self._expected), num_returns=1)
        worker = self._expected.pop(first)
        try:
            answer: Answer = self._ray.get(first)
        except self._ray.exceptions.RayError as error:
            # The first line names the actor, the last one the cause.
            lines = str(error).strip().splitlines() or [type(error).__name__]
            answer = WorkerLost(
                worker, f"its process ended: {' '.join(dict.fromkeys((lines[0], lines[-1])))}"
            )
        if isinstance(answer, WorkerLost):
            self._ray.kill(self._running.pop(worker))
        return answer

    def close(self) -> None:
        """See :class:`perception.engines.protocol.Engine`."""
        if self._began:
            self._ray.shutdown()
            return
        for actor in self._running.values():
            self._ray.kill(actor)


class _Worker:
    """A Ray actor."""

    def __init__(self, job: Job, worker: int, threads: int) -> None:
        self._job, self._worker, self._threads = job, worker, threads

    def load(self) -> Answer:
        try:
            # Ray shows a worker only its own GPU, which is device 0.
            self._work = self._job.load(0, self._threads)
        except Exception as error:
            return LoadFailed(self._worker, error)
        return WorkerReady(self._worker)

    def do(self, task: Any) -> Answer:
        try:
            return TaskDone(self._worker, self._work(task))
        except Exception as error:
            # Do not continue: the error may have left a broken device.
            return WorkerLost(self._worker, f"{type(error).__name__}: {error}")
