"""``perceive push``: weights and a model card to the Hugging Face hub."""

from __future__ import annotations

import argparse
from typing import Any

from perception.checkpoints.weights import push_to_hub
from perception.cli.console import OUTPUT, add_command


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "push", run)
    parser.add_argument("weights", help="shipped name or .safetensors file")
    parser.add_argument(
        "repository", metavar="ORGANISATION/NAME", help="made, and private, where there is none"
    )
    parser.add_argument(
        "--licence", default="other", help="of the weights, as the hub names it (default: other)"
    )
    parser.add_argument("--public", action="store_true", help="a repository that is made is for everybody")


def run(options: argparse.Namespace) -> int:
    """Upload; the status is 0."""
    address = push_to_hub(
        options.weights, options.repository, licence=options.licence, private=not options.public
    )
    OUTPUT.print(address, markup=False, highlight=False, soft_wrap=True)
    return 0
