"""Refusals of questions."""

from __future__ import annotations


class QuestionError(ValueError):
    """A question that cannot be answered; the message suggests one that can.

    Attributes:
        part: the part of the question at fault.
    """

    def __init__(self, part: str, message: str) -> None:
        super().__init__(message)
        self.part = part


def pose_missing(words: str) -> str:
    """Return the refusal of a question that needs the robot's pose."""
    return (
        f"'{words}' depends on the robot's current pose, which the store does not know. Give it with --pose X"
        " Y YAW, estimate it from a scan with recall locate, or ask for example: 'what is near (3, 1)?'"
    )
