"""Text of ``dataset.yaml``, with a comment on the origin of each value."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import yaml

from perception.config import to_dict
from perception.data.own.description import Description

_HEAD = "# Description of this folder; check it with `perceive doctor`. Units: metres, radians."


def description_text(description: Description, reasons: Mapping[str, str] | None = None) -> str:
    """Format a description as YAML.

    Args:
        description: the description.
        reasons: comments by dotted field name, such as ``"scans.axes"``.
    """
    comments = reasons or {}
    lines = [_HEAD]
    for name, value in to_dict(description).items():
        if isinstance(value, Mapping) and value:
            lines += [*_comment(comments.get(name), ""), f"{name}:"]
            for key, entry in value.items():
                lines += [
                    *_comment(comments.get(f"{name}.{key}"), "  "),
                    f"  {_scalar(key)}: {_scalar(entry)}",
                ]
        else:
            lines += [*_comment(comments.get(name), ""), f"{name}: {_scalar(value)}"]
    return "\n".join(lines) + "\n"


def _comment(reason: str | None, indent: str) -> list[str]:
    lead = f"{indent}# "
    return textwrap.wrap(reason, 100, initial_indent=lead, subsequent_indent=lead) if reason else []


def _scalar(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("...\n").strip()
