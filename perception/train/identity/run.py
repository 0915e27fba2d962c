"""Complete training of the embedding head: features from drives and towns, the loop, the files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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
from perception.simulate import SceneConfig, SensorModel, SimulatedScan, Spot, build_scene, scan_along
from perception.train.events import EventFile
from perception.train.identity.observations import Observations, Observer, View, drive_views, thin_points
from perception.train.identity.trainer import IdentityConfig, IdentityTrainer, OnStep, vectors_of
from perception.types import FloatArray
from sparse_core.common.files import GrowingFile, write_file

#: Scan positions along the street, and the time between them.
_PLACES_M = tuple(range(-30, 31, 12))
_INTERVAL_S = 1.0
_EXTENT_M, _RANGE_M = 110.0, 80.0
#: Half the field of view of a view, which is rotated to the detector's range ahead.
_HALF_VIEW_RAD = np.pi / 4
#: Largest random turn beyond a quarter.
_TURN_RAD = 0.2
_THINNED_SHARE = 0.33


def town_views(seed: int) -> Iterator[View]:
    """Yield views of the town of a seed, some of them thinned.

    Cars appear from all sides, so that embeddings do not depend on the side. Objects differ in shape, size
    and reflectivity only; a sensor without colours hardly distinguishes two cars of the same body, size and
    brightness.

    Raises:
        ImportError: Open3D is missing.
    """
    scene = build_scene(seed, SceneConfig(extent_m=_EXTENT_M))
    spots = [Spot(scene.start.u + place, scene.start.v, 0.0) for place in _PLACES_M]
    sensor = replace(SensorModel.preset("64"), range_max_m=_RANGE_M)
    random = np.random.default_rng([seed, 7])
    scans = scan_along(scene, spots, seed=seed, sensor=sensor, interval_s=_INTERVAL_S)
    for number, scan in enumerate(scans):
        for quarter in range(4):
            view = _ahead(scan, quarter * np.pi / 2 + random.uniform(-_TURN_RAD, _TURN_RAD))
            named = replace(view, scene=f"town {seed}", time_s=number * _INTERVAL_S)
            if random.random() < _THINNED_SHARE:
                named = replace(named, points=thin_points(named.points, random), thinned=True)
            yield named


def _ahead(scan: SimulatedScan, bearing_rad: float) -> View:
    """Return the view in a direction, rotated to +x."""
    points = scan.cloud.points
    off = np.arctan2(points[:, 1], points[:, 0]) - bearing_rad
    seen = np.abs((off + np.pi) % (2 * np.pi) - np.pi) < _HALF_VIEW_RAD
    boxes = scan.boxes.boxes.copy()
    boxes[:, :2] = _turned(boxes[:, :2], -bearing_rad)
    boxes[:, 6] -= bearing_rad
    kept = points[seen].copy()
    kept[:, :2] = _turned(kept[:, :2], -bearing_rad)
    return View(kept, boxes, scan.track_ids, "", 0.0)


def _turned(places: FloatArray, angle_rad: float) -> FloatArray:
    cosine, sine = np.cos(angle_rad), np.sin(angle_rad)
    turned: FloatArray = (places @ np.array([[cosine, sine], [-sine, cosine]])).astype(np.float32)
    return turned


#: Called with the number of finished feature sources and their total.
OnSource = Callable[[int, int], None]


@dataclass(frozen=True)
class IdentityOutcome:
    """State of a run.

    Attributes:
        step: steps done.
        finished: True if all steps are done.
        directory: contains config.yaml, checkpoint.pt, log.csv, the features in sights/, weights.safetensors
            and weights-embedding.safetensors.
        vectors, sizes: re-identification within class in the held-out towns, by embeddings and by box sizes
            alone; None if unfinished or without such towns.
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
    """Train the embedding head on drives and simulated towns, or resume an unfinished run.

    Args:
        config: of the run.
        weights: shipped name or file of the detector, which stays unchanged.
        drives: folders of data sets with track ids, such as KITTI sequences.
        directory: of the run.
        device: where to train and detect.
        max_seconds: stop after this long; the next call resumes.
        on_source: called after each drive and town with the number done and the total.
        on_step: called after each step.
        on_remark: called with a sentence on where an earlier run resumes.

    Raises:
        CheckpointError: missing weights, weights without refinement, or a checkpoint of another run.
        DataError: a drive has no track ids.
        ImportError: towns are requested and Open3D is missing.
        Interrupted: SIGINT or SIGTERM arrived. The step was finished and a checkpoint written.
    """
    started = time.perf_counter()
    directory, device = Path(directory), usable_device(device)
    directory.mkdir(parents=True, exist_ok=True)
    source = resolve_weights(weights)

    def out_of_time() -> bool:
        return max_seconds is not None and time.perf_counter() - started > max_seconds

    cache = _ObservationCache(source, directory / "sights", device, config.seed)
    learned = [*map(cache.drive, drives), *map(cache.town, _seeds(config, held=False))]
    held = list(map(cache.town, _seeds(config, held=True)))
    parts: list[Observations] = []
    for number, gather in enumerate([*learned, *held], start=1):
        if out_of_time():
            return IdentityOutcome(0, False, directory, None, None)
        parts.append(gather())
        if on_source is not None:
            on_source(number, len(learned) + len(held))
    if not learned:
        raise DataError("no training data; pass a drive (--data) or towns (--towns)")
    stopped_early = (directory / "config.yaml").is_file()
    trainer = IdentityTrainer(config, Observations.joined(parts[: len(learned)]), directory, device=device)
    if on_remark is not None and trainer.step:
        on_remark(f"resuming {directory} at step {trainer.step} of {config.steps}")
    elif on_remark is not None and stopped_early:
        on_remark(f"{directory} has an earlier run without a checkpoint; training starts at step 0")
    save_config(config, directory / "config.yaml")
    with _LossFiles(directory / "log.csv", trainer.step, on_step) as log:
        finished = trainer.run(log, out_of_time)
    head = trainer.head()
    copied = directory / "weights.safetensors"
    embedding_path(copied).unlink(missing_ok=True)
    write_file(copied, source.read_bytes())
    save_embedding(head, copied)
    if not finished or not held:
        return IdentityOutcome(trainer.step, finished, directory, None, None)
    held_out = Observations.joined(parts[len(learned) :])
    return IdentityOutcome(trainer.step, True, directory, *evaluate_head(head, held_out))


def evaluate_head(head: EmbeddingHead, sights: Observations) -> tuple[Retrieval, Retrieval]:
    """Evaluate re-identification by a head's embeddings, and by box sizes alone.

    Queries run within class and scene; thinned observations are excluded.
    """
    whole = sights[~sights.thinned]
    asked = whole.objects, whole.scenes, whole.times_s, whole.labels
    vectors = vectors_of(head, torch.from_numpy(whole.features))
    return retrieval(vector_distances(vectors), *asked), retrieval(size_distances(whole.boxes), *asked)


class _ObservationCache:
    """Observations of drives and towns, computed once and stored in files.

    Args:
        weights: of the detector.
        folder: of the files.
        device: to detect on.
        seed: of the thinning.
    """

    def __init__(self, weights: Path, folder: Path, device: torch.device, seed: int) -> None:
        self._weights, self._folder, self._device, self._seed = weights, folder, device, seed
        self._made_of = digest(weights)[:12]
        self._observer: Observer | None = None

    def drive(self, folder: str | Path) -> Callable[[], Observations]:
        """Return a function that loads the observations of a data set."""
        scene = Path(folder).resolve().name

        def views() -> Iterator[View]:
            return drive_views(open_data_set(folder), scene=scene, seed=self._seed)

        return lambda: self._load(f"drive-{scene}-{self._seed}", views)

    def town(self, seed: int) -> Callable[[], Observations]:
        """Return a function that loads the observations of a town."""
        return lambda: self._load(f"town-{seed}", lambda: town_views(seed))

    def _load(self, name: str, views: Callable[[], Iterator[View]]) -> Observations:
        path = self._folder / f"{name}-{self._made_of}.npz"
        if not path.is_file():
            if self._observer is None:
                self._observer = Observer(load_weights(self._weights).to(self._device).fold())
            self._observer(views()).save(path)
        return Observations.load(path)


def _seeds(config: IdentityConfig, *, held: bool) -> range:
    first = config.first_town + (config.towns if held else 0)
    return range(first, first + (config.held_towns if held else config.towns))


class _LossFiles:
    """``log.csv`` and TensorBoard events with the mean loss of every ten steps.

    A resumed run drops rows of later steps.
    """

    def __init__(self, path: Path, step: int, on_step: OnStep | None) -> None:
        rows = path.read_text().splitlines()[1:] if path.is_file() and step else []
        self._kept = [row for row in rows if int(row.split(",")[0]) <= step]
        self._path, self._step, self._on_step, self._losses = path, step, on_step, list[float]()

    def __enter__(self) -> _LossFiles:
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
