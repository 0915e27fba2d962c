"""``perceive train embedding``: train the embedding head of a trained detector."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

import yaml

from perception.cli.console import OUTPUT
from perception.config import load_config
from sparse_core.common.console import LOG, progress_bar

__all__ = ["run_embedding", "trains_embedding"]


def trains_embedding(path: Path) -> bool:
    """Return True for the configuration of an embedding head; invalid YAML is reported later."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError, OverflowError, TypeError, KeyError):
        return False
    return isinstance(values, dict) and values.get("trains") == "embedding"


def run_embedding(options: argparse.Namespace, path: Path) -> int:
    """Train, then print the weights and the recall of objects.

    Raises:
        ValueError: ``--from`` is missing, or an option works for detectors only.
    """
    from perception.train.identity import IdentityConfig
    from perception.train.identity.run import train_identity

    config = load_config(IdentityConfig, path)
    if options.start is None:
        raise ValueError("'embedding' needs a trained detector. Add --from WEIGHTS.")
    for name in ("masks", "coding", "workers"):
        if getattr(options, name) is not None:
            raise ValueError(f"--{name} works for detectors only, not for 'embedding'. Leave it out.")
    wanted = {name: getattr(options, name) for name in ("steps", "learning_rate")}
    config = replace(config, **{name: value for name, value in wanted.items() if value is not None})
    with progress_bar() as bar:
        looking = bar.add_task("reading drives and simulated towns", total=None)
        learning = bar.add_task("training", total=config.steps)
        outcome = train_identity(
            config,
            options.start,
            [options.data, *options.extra],
            options.out,
            device=options.device,
            max_seconds=options.max_seconds,
            on_source=lambda done, total: bar.update(looking, completed=done, total=total),
            on_remark=LOG.info,
            on_step=lambda step, steps, loss: bar.update(learning, completed=step, total=steps),
        )
    if options.json:
        print(json.dumps(asdict(outcome), default=str))
        return 0
    if not outcome.finished:
        OUTPUT.print(f"stopped at step {outcome.step}; rerun the same command to resume")
    if outcome.step:
        OUTPUT.print(
            f"weights: {outcome.directory / 'weights.safetensors'}, with the embedding head", soft_wrap=True
        )
    for name, found in (("embeddings", outcome.vectors), ("box sizes", outcome.sizes)):
        if found is not None:
            OUTPUT.print(
                f"held-out towns, by {name}: mean AP {found.mean_ap:.3f}, recall@1 {found.recall_at_1:.3f}"
                f" (chance {found.chance:.3f}, {found.questions} observations)"
            )
    return 0
