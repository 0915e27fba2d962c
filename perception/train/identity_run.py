"""A whole training of the head for vectors of boxes: features from drives and towns, the loop, the files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from perception.checkpoints.weights import load_weights, resolve_weights
from perception.config import save_config
from perception.data import open_data_set
from perception.device import usable_device
from perception.errors import DataError
from perception.evaluate.retrieval import Retrieval, retrieval, size_distances, vector_distances
from perception.model.embedding import EmbeddingHead, digest, embedding_path, save_embedding
from perception.train.events import EventFile
from perception.train.identity import IdentityConfig, IdentityTrainer, OnStep, vectors_of
from perception.train.sights import Observer, Sights, View, drive_views
from perception.train.towns import town_views
from sparse_core.files import GrowingFile, write_file

#: Called with (sources of features done, all of them).
OnSource = Callable[[int, int], None]


@dataclass(frozen=True)
class IdentityOutcome:
    """Where a run stands.

    Attributes:
        step: steps done.
        finished: whether that is all of them.
        directory: holds config.yaml, checkpoint.pt, log.csv, the features in sights/, and weights.safetensors
            with weights-embedding.safetensors, which are what a detector is made of.
        vectors, sizes: re-identification in the towns that were kept apart, by vectors and by sizes of boxes
            alone, among sights of one class; None while unfinished, or without such towns.
    """

    step: int
    finished: bool
    directory: Path
    vectors: Retrieval | None
    sizes: Retrieval | None


def train_identity(
    config: IdentityConfig,
    weights: str | Path,
    drives: Sequence[str | Path],
    directory: str | Path,
    *,
    device: str | torch.device = "cpu",
    max_seconds: float | None = None,
    on_source: OnSource | None = None,
    on_step: OnStep | None = None,
    on_remark: Callable[[str], None] | None = None,
) -> IdentityOutcome:
    """Train a head for vectors of boxes on drives and simulated towns; an unfinished run goes on.

    Args:
        config: of the run.
        weights: shipped name or file of the detector, which stays as it is.
        drives: folders of data sets with identities, such as KITTI sequences.
        directory: of the run.
        device: where to train, and to look at scans.
        max_seconds: stop after this long; the next call goes on.
        on_source: called after each drive and town whose features are there.
        on_step: called after each step.
        on_remark: called with a sentence on where a run begins that was begun before.

    Raises:
        CheckpointError: no such weights, weights without refinement, or a checkpoint of another run.
        DataError: a drive that does not tell which object is which.
        ImportError: towns are asked for and Open3D is missing.
        Interrupted: SIGINT or SIGTERM came; the step was finished and a checkpoint written.
    """
    started = time.perf_counter()
    directory, device = Path(directory), usable_device(device)
    directory.mkdir(parents=True, exist_ok=True)
    source = resolve_weights(weights)

    def out_of_time() -> bool:
        return max_seconds is not None and time.perf_counter() - started > max_seconds

    gatherer = _Gatherer(source, directory / "sights", device, config.seed)
    learned = [*map(gatherer.drive, drives), *map(gatherer.town, _seeds(config, held=False))]
    held = list(map(gatherer.town, _seeds(config, held=True)))
    parts: list[Sights] = []
    for number, gather in enumerate([*learned, *held], start=1):
        if out_of_time():
            return IdentityOutcome(0, False, directory, None, None)
        parts.append(gather())
        if on_source is not None:
            on_source(number, len(learned) + len(held))
    if not learned:
        raise DataError("nothing to learn from: name a drive (--data) or ask for towns")
    stopped_early = (directory / "config.yaml").is_file()
    trainer = IdentityTrainer(config, Sights.joined(parts[: len(learned)]), directory, device=device)
    if on_remark is not None and trainer.step:
        on_remark(f"resuming {directory} at step {trainer.step} of {config.steps}")
    elif on_remark is not None and stopped_early:
        on_remark(f"nothing to resume: an earlier run in {directory} left no checkpoint; it starts at step 0")
    save_config(config, directory / "config.yaml")
    with _LossLog(directory / "log.csv", trainer.step, on_step) as log:
        finished = trainer.run(log, out_of_time)
    head = trainer.head()
    copied = directory / "weights.safetensors"
    embedding_path(copied).unlink(missing_ok=True)
    write_file(copied, source.read_bytes())
    save_embedding(head, copied)
    if not finished or not held:
        return IdentityOutcome(trainer.step, finished, directory, None, None)
    return IdentityOutcome(trainer.step, True, directory, *judged(head, Sights.joined(parts[len(learned) :])))


def judged(head: EmbeddingHead, sights: Sights) -> tuple[Retrieval, Retrieval]:
    """Re-identification by the vectors of a head, and by boxes' sizes alone.

    Sights are asked for among those of their class and scene; what was thinned out is left aside.
    """
    whole = sights[~sights.thinned]
    asked = whole.objects, whole.scenes, whole.times_s, whole.labels
    vectors = vectors_of(head, torch.from_numpy(whole.features))
    return retrieval(vector_distances(vectors), *asked), retrieval(size_distances(whole.boxes), *asked)


class _Gatherer:
    """Sights of drives and towns, from files where they are there already.

    Args:
        weights: of the detector.
        folder: of the files.
        device: to look on.
        seed: of what is thinned out.
    """

    def __init__(self, weights: Path, folder: Path, device: torch.device, seed: int) -> None:
        self._weights, self._folder, self._device, self._seed = weights, folder, device, seed
        self._made_of = digest(weights)[:12]
        self._observer: Observer | None = None

    def drive(self, folder: str | Path) -> Callable[[], Sights]:
        """What gathers the sights of a data set."""
        scene = Path(folder).resolve().name

        def views() -> Iterator[View]:
            return drive_views(open_data_set(folder), scene=scene, seed=self._seed)

        return lambda: self._gathered(f"drive-{scene}-{self._seed}", views)

    def town(self, seed: int) -> Callable[[], Sights]:
        """What gathers the sights of a town."""
        return lambda: self._gathered(f"town-{seed}", lambda: town_views(seed))

    def _gathered(self, name: str, views: Callable[[], Iterator[View]]) -> Sights:
        path = self._folder / f"{name}-{self._made_of}.npz"
        if not path.is_file():
            if self._observer is None:
                self._observer = Observer(load_weights(self._weights).to(self._device).fold())
            self._observer(views()).save(path)
        return Sights.load(path)


def _seeds(config: IdentityConfig, *, held: bool) -> range:
    first = config.first_town + (config.towns if held else 0)
    return range(first, first + (config.held_towns if held else config.towns))


class _LossLog:
    """``log.csv``: the mean loss of every ten steps. A run that goes on drops rows of later steps.

    The same for TensorBoard.
    """

    def __init__(self, path: Path, step: int, on_step: OnStep | None) -> None:
        rows = path.read_text().splitlines()[1:] if path.is_file() and step else []
        self._kept = [row for row in rows if int(row.split(",")[0]) <= step]
        self._path, self._step, self._on_step, self._losses = path, step, on_step, list[float]()

    def __enter__(self) -> _LossLog:
        rows = "".join(f"{row}\n" for row in ["step,loss", *self._kept])
        write_file(self._path, rows)
        self._stream = GrowingFile(self._path, keep=len(rows.encode()))
        self._events = EventFile(self._path.parent, self._step)
        return self

    def __call__(self, step: int, steps: int, loss: float) -> None:
        self._losses.append(loss)
        if step % 10 == 0 or step == steps:
            mean = float(np.mean(self._losses))
            self._stream.write(f"{step},{mean:.6g}\n")
            self._events.write(step, {"loss/total": mean})
            self._losses.clear()
        if self._on_step is not None:
            self._on_step(step, steps, loss)

    def __exit__(self, *exception: object) -> None:
        self._stream.close()
        self._events.close()
