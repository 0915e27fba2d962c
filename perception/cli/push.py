"""``perceive push``: upload weights and a model card to the Hugging Face Hub."""

from __future__ import annotations

import argparse
from typing import Any

from perception.checkpoints.weights import push_to_hub
from perception.cli.console import OUTPUT, add_command


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "push", run)
    parser.add_argument("weights", help="name of shipped weights, or .safetensors file")
    parser.add_argument(
        "repository", metavar="ORGANISATION/NAME", help="repository; created as private if missing"
    )
    parser.add_argument(
        "--licence", default="other", help="licence of the weights, by its name on the Hub (default: other)"
    )
    parser.add_argument("--public", action="store_true", help="create the repository as public")


def run(options: argparse.Namespace) -> int:
    """Upload and print the address."""
    address = push_to_hub(
        options.weights, options.repository, licence=options.licence, private=not options.public
    )
    OUTPUT.print(address, markup=False, highlight=False, soft_wrap=True)
    return 0
