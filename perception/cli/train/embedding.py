"""``perceive train embedding``: train the head for vectors of boxes of a finished detector."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

import yaml

from perception.cli.console import OUTPUT, REMARKS, progress_bar
from perception.config import load_config

__all__ = ["run_embedding", "trains_embedding"]


def trains_embedding(path: Path) -> bool:
    """Whether a configuration is of a head and not of a detector; what is no YAML is told later."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError, OverflowError, TypeError, KeyError):
        return False
    return isinstance(values, dict) and values.get("trains") == "embedding"


def run_embedding(options: argparse.Namespace, path: Path) -> int:
    """Train, then say where the head is and how well it knows objects again.

    Raises:
        ValueError: no weights to start from, or an option of detectors alone.
    """
    from perception.train.identity import IdentityConfig
    from perception.train.identity_run import train_identity

    config = load_config(IdentityConfig, path)
    if options.start is None:
        raise ValueError("a head is trained on a finished detector: name its weights (--from WEIGHTS)")
    for name in ("masks", "coding", "workers"):
        if getattr(options, name) is not None:
            raise ValueError(f"--{name} is of detectors; a head for vectors of boxes has none")
    wanted = {name: getattr(options, name) for name in ("steps", "learning_rate")}
    config = replace(config, **{name: value for name, value in wanted.items() if value is not None})
    with progress_bar() as bar:
        looking = bar.add_task("looking at drives and towns", total=None)
        learning = bar.add_task("learning", total=config.steps)
        outcome = train_identity(
            config,
            options.start,
            [options.data, *options.extra],
            options.out,
            device=options.device,
            max_seconds=options.max_seconds,
            on_source=lambda done, total: bar.update(looking, completed=done, total=total),
            on_remark=lambda remark: REMARKS.print(remark, highlight=False, soft_wrap=True),
            on_step=lambda step, steps, loss: bar.update(learning, completed=step, total=steps),
        )
    if options.json:
        print(json.dumps(asdict(outcome), default=str))
        return 0
    if not outcome.finished:
        OUTPUT.print(f"stopped at step {outcome.step}; run the same command again to resume")
    if outcome.step:
        OUTPUT.print(f"weights: {outcome.directory / 'weights.safetensors'}, with its head", soft_wrap=True)
    for name, found in (("vectors", outcome.vectors), ("sizes alone", outcome.sizes)):
        if found is not None:
            OUTPUT.print(
                f"towns kept apart, by {name}: mean AP {found.mean_ap:.3f}, recall@1 {found.recall_at_1:.3f}"
                f" (chance {found.chance:.3f}, {found.questions} sights)"
            )
    return 0
