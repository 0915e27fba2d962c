"""The training loop: resumable, and deterministic for a seed."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parametrize

from perception.checkpoints.compression import run_every_layer
from perception.config import TrainConfig, save_config, to_dict
from perception.device import usable_device
from perception.errors import ConfigError, DataError
from perception.model.network import Network
from perception.model.pillars import Pillars, make_pillars
from perception.registry import make_network
from perception.train.checkpoint import damaged_checkpoint, read_checkpoint, write_checkpoint
from perception.train.data.batches import Batch, SampleSequence, batches
from perception.train.data.frames import TrainingFrame, class_counts
from perception.train.data.objects import object_bank
from perception.train.fine_tune import FineTune, plain_network, starting_network
from perception.train.headings import fix_headings
from perception.train.log import TrainingLog, training_progress
from perception.train.losses import LOSS_WEIGHTS, network_losses
from perception.train.ranks import ALONE, Ranks
from perception.train.synchronised_norm import synchronise_norms
from perception.train.teacher import load_teacher
from perception.train.transfer import Transfer
from sparse_core.common.interruption import Interrupted, StopRequest, stop_requests
from sparse_core.common.libraries import module_available


def seed_everything(seed: int) -> None:
    """Seed all random generators and choose deterministic convolutions."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True


#: Called with the step, all steps, and the loss.
OnLog = Callable[[int, int, float], None]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
#: Training frames used to choose masks.
_CALIBRATION_FRAMES = 16
#: Steps between two exchanges of stop signals among ranks.
_STEPS_UNASKED = 10


class Trainer:
    """A training run in one directory; a new trainer on the same directory resumes it.

    Args:
        config: of the run.
        directory: for all output.
        frames: main training frames.
        extra: further frames, for example simulated ones.
        device: where to train.
        fine_tune: start from finished weights; None: from random ones.
        ranks: processes that train together, each with a trainer of the same arguments; overrides ``device``.

    Raises:
        CheckpointError: the directory contains a run with another configuration.
        ConfigError: an unbounded range, a teacher with another map, or a batch that the processes cannot
            share equally.
        DataError: no training frame, or none with an object of a class.
    """

    def __init__(
        self,
        config: TrainConfig,
        directory: str | Path,
        frames: Sequence[TrainingFrame],
        *,
        extra: Sequence[TrainingFrame] = (),
        device: str | torch.device = "cpu",
        fine_tune: FineTune | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        if config.detector.pillars.open:
            raise ConfigError(
                "detector.pillars.range_m is None, but training needs a bounded range of six numbers. The"
                " trained detector can run without one (Detector.with_range(None))"
            )
        if config.batch_size % ranks.count:
            raise ConfigError(
                f"batch_size {config.batch_size} is not a multiple of the number of processes, {ranks.count};"
                " choose a multiple"
            )
        _check_frames(frames, config.detector.head.classes)
        self.config = config
        self.fine_tune = fine_tune
        #: Report on starting weights with other classes.
        self.transfer: Transfer | None = None
        self.directory = Path(directory)
        #: File from which a stopped run resumes.
        self.checkpoint_path = self.directory / "checkpoint.pt"
        self.ranks = ranks
        self.device = usable_device(device) if ranks.count == 1 else ranks.device
        # Before the seed, so that a run with a teacher starts from the same weights as one without.
        self.teacher = load_teacher(config.teacher, config.detector, self.device) if config.teacher else None
        seed_everything(config.seed)
        objects = object_bank(frames, extra, extra_below=config.augment.paste_extra_below)
        self.samples = SampleSequence(frames, extra, objects, config)
        stored = read_checkpoint(self.checkpoint_path, self._settings(), self.device)
        self.network = self._starting_network(stored)
        if not config.detector.head.headings:
            fix_headings(self.network)
        # Extra state lives on the CPU and follows from the configuration, so it is not shared.
        state = self.network.state_dict().items()
        ranks.share([value for name, value in state if not name.endswith("_extra_state")])
        synchronise_norms(self.network, ranks)
        self.average = {name: value.detach().clone() for name, value in self.network.state_dict().items()}
        self.optimizer = torch.optim.AdamW(
            _parameter_groups(self.network, config.weight_decay), lr=config.learning_rate, betas=(0.95, 0.99)
        )
        self._learning = [value for value in self.network.parameters() if value.requires_grad]
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer,
            max_lr=config.learning_rate,
            total_steps=config.steps + 1,
            pct_start=0.3,
            div_factor=10.0,
            base_momentum=0.85,
            max_momentum=0.95,
        )
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=config.precision == "float16")
        self.step = 0
        self._interrupted = False
        if stored is not None:
            self._restore(stored)
        ranks.wait()  # All have read the checkpoint before the first writes.
        if ranks.writes:
            self.directory.mkdir(parents=True, exist_ok=True)
            save_config(config, self.directory / "config.yaml")

    def run(
        self,
        *,
        max_seconds: float | None = None,
        show_progress: bool = True,
        on_log: OnLog | None = None,
        validate: Callable[[], None] | None = None,
    ) -> bool:
        """Train until all steps are done, the time is up or a signal arrives; always write a checkpoint.

        Args:
            max_seconds: stop after the step that exceeds it on any rank.
            show_progress: draw a progress bar.
            on_log: called at every logged step.
            validate: called every ``config.validate_every`` steps, after the last, and where a run resumes,
                each time with a checkpoint of the step; on the rank that writes.

        Returns:
            True if all steps are done.

        Raises:
            Interrupted: SIGINT or SIGTERM arrived. The step was finished and a checkpoint written.
        """
        started = time.perf_counter()
        writes = self.ranks.writes
        with (
            stop_requests() as stop,
            TrainingLog(self.directory / "log.csv" if writes else None, self.step) as log,
            training_progress(show_progress and writes) as progress,
        ):
            task = progress.add_task("training", total=self.config.steps, completed=self.step, loss="")
            self._validate(validate)
            for batch in self._batches():
                values = self.train_step(batch)
                self.step += 1
                out_of_time = max_seconds is not None and self.ranks.any(
                    time.perf_counter() - started > max_seconds
                )
                if self.step % 10 == 0 or self.step == self.config.steps:
                    row = {name: float(value) for name, value in values.items()}
                    log.write({"step": self.step, **row, "seconds": time.perf_counter() - started})
                    progress.update(task, loss=f"loss {row['total']:.3f}")
                    if on_log is not None and writes:
                        on_log(self.step, self.config.steps, row["total"])
                progress.update(task, completed=self.step)
                if out_of_time or self._stopping(stop):
                    break
                due = self._validates_now or self.step % self.config.checkpoint_every == 0
                if due and self.step < self.config.steps:
                    self.save_checkpoint()
                    self._validate(validate)
            self.save_checkpoint()
            if self.step == self.config.steps:
                self._validate(validate)
        if self._interrupted or (stop and self.ranks.count == 1):
            raise Interrupted(
                f"interrupted at step {self.step} of {self.config.steps}, saved in {self.checkpoint_path}."
                " Run the same command again to resume",
                stop.signal_number,
            )
        if writes and module_available("matplotlib"):
            from perception.train.curves import plot_curves

            on_gpu = self.device.type == "cuda"
            device = torch.cuda.get_device_name(self.device) if on_gpu else "a CPU"
            plot_curves(self.directory / "log.csv", self.directory / "curves.png", device=device)
        return self.step >= self.config.steps

    @property
    def _validates_now(self) -> bool:
        every = self.config.validate_every
        return every > 0 and self.step > 0 and (self.step % every == 0 or self.step == self.config.steps)

    def _validate(self, validate: Callable[[], None] | None) -> None:
        """Validate on the rank that writes, if the step is due; the others wait."""
        if validate is not None and self._validates_now:
            if self.ranks.writes:
                validate()
            self.ranks.wait()

    def _stopping(self, stop: StopRequest) -> bool:
        """Return True if a signal reached any rank. Ranks exchange this only every few steps to save time."""
        if self.ranks.count > 1 and self.step % _STEPS_UNASKED and self.step < self.config.steps:
            return False
        self._interrupted = self.ranks.any(bool(stop)) if self.ranks.count > 1 else bool(stop)
        return self._interrupted

    def _batches(self) -> Iterable[Batch]:
        return batches(
            self.samples,
            first_step=self.step,
            workers=self.config.workers,
            pin=self.device.type == "cuda",
            ranks=self.ranks,
        )

    def train_step(self, batch: Batch) -> dict[str, Tensor | float]:
        """Run one optimizer step; return the unweighted losses.

        Raises:
            FloatingPointError: the loss is not finite.
        """
        batch = batch.to(self.device)
        generator = torch.Generator(self.device).manual_seed(self.config.seed * 1_000_003 + self.step)
        pillars = make_pillars(batch.clouds, self.config.detector.pillars)
        dtype = _DTYPES[self.config.precision]
        autocast = torch.autocast(self.device.type, dtype=dtype, enabled=dtype != torch.float32)
        with autocast, parametrize.cached():  # compute masked and rounded weights once per step
            losses = self.losses(pillars, batch, generator)
            total = torch.stack([losses[name] * LOSS_WEIGHTS[name] for name in losses]).sum()
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(total).backward()
        summed = self.ranks.sum_gradients(self._learning, torch.stack([total, *losses.values()]))
        self.scaler.unscale_(self.optimizer)
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.config.gradient_clip)
        if self.step % 50 == 0 and not bool(torch.isfinite(summed[0])):
            raise FloatingPointError(f"loss is not finite at step {self.step}; lower learning_rate")
        self.scaler.step(self.optimizer)
        self.scaler.update()
        rate = self.schedule.get_last_lr()[0]
        self.schedule.step()
        self._update_average()
        values = dict(zip(("total", *losses), summed.unbind(), strict=True))
        return {**values, "gradient_norm": norm, "learning_rate": rate}

    def losses(self, pillars: Pillars, batch: Batch, generator: torch.Generator) -> dict[str, Tensor]:
        """Return all unweighted losses of a batch. Trainers with other targets override this."""
        return network_losses(
            self.network,
            pillars,
            batch,
            generator,
            self.ranks,
            teacher=self.teacher,
            teacher_classes=self.config.teacher_classes,
        )

    def _update_average(self) -> None:
        # The warm-up removes the poor first weights from the average.
        decay = min(self.config.average_decay, (1 + self.step) / (10 + self.step))
        current = self.network.state_dict()
        floats = [
            name
            for name, value in current.items()
            if value.is_floating_point() and not name.endswith("_extra_state")
        ]
        torch._foreach_lerp_(
            [self.average[name] for name in floats], [current[name] for name in floats], 1 - decay
        )
        for name in current.keys() - set(floats):
            self.average[name].copy_(current[name])

    def averaged_network(self) -> Network:
        """Return a copy of the network with the averaged weights, in evaluation mode.

        After fine-tuning, masks are replaced by zeros; with a coding, the network is folded.
        """
        if self.fine_tune is not None:
            return plain_network(self.network, self.average)
        network = make_network(self.config.detector)
        network.load_state_dict({name: value.cpu() for name, value in self.average.items()})
        return network.eval()

    def save_checkpoint(self) -> None:
        """Write everything needed to resume; the first rank replaces the file atomically."""
        if not self.ranks.writes:
            return
        state = {
            "config": self._settings(),
            "step": self.step,
            "network": self.network.state_dict(),
            "average": self.average,
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
        }
        write_checkpoint(self.checkpoint_path, state)

    def _settings(self) -> dict[str, Any]:
        """Return the settings that a resumed run must share with this one."""
        fine_tune = {} if self.fine_tune is None else {"fine_tune": asdict(self.fine_tune)}
        return {**to_dict(self.config), **fine_tune}

    def _starting_network(self, stored: dict[str, Any] | None) -> Network:
        """Return the network with random or finished weights; a checkpoint's weights are loaded later."""
        detector = self.config.detector
        if self.fine_tune is None:
            return make_network(detector).to(self.device).train()
        try:
            state = None if stored is None else stored["network"]
            started = starting_network(self.fine_tune, detector, self.device, self._calibrate, state)
        except (KeyError, TypeError, RuntimeError) as error:
            if stored is None:
                raise
            raise damaged_checkpoint(self.checkpoint_path, error) from error
        self.transfer = started.transfer
        return started.network

    def _calibrate(self, network: Network) -> None:
        """Run a network once over some unaugmented training frames."""
        frames = self.samples.frames
        chosen = frames[:: max(1, len(frames) // _CALIBRATION_FRAMES)][:_CALIBRATION_FRAMES]
        run_every_layer(network, [torch.from_numpy(frame.points).to(self.device) for frame in chosen])

    def _restore(self, state: dict[str, Any]) -> None:
        try:
            self.network.load_state_dict(state["network"])
            self.average = dict(state["average"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.schedule.load_state_dict(state["schedule"])
            self.scaler.load_state_dict(state["scaler"])
            self.step = int(state["step"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise damaged_checkpoint(self.checkpoint_path, error) from error


def _check_frames(frames: Sequence[TrainingFrame], classes: Sequence[str]) -> None:
    if len(frames) == 0:
        raise DataError("the training split is empty; add frames to it")
    counts = class_counts(frames, classes)
    if sum(counts.values()) == 0:
        raise DataError(
            f"no training frame contains {', '.join(classes)}; check the class names of the labels with"
            " `perceive doctor`"
        )


def _parameter_groups(network: Network, weight_decay: float) -> list[dict[str, Any]]:
    """Group parameters, without weight decay for biases and norms."""
    learning = [value for value in network.parameters() if value.requires_grad]
    matrices = [value for value in learning if value.ndim > 1]
    vectors = [value for value in learning if value.ndim <= 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
