"""Questions that people ask a robot about what it remembers."""

from memory.questions.answers import (
    Changed,
    DrivePose,
    Happened,
    HowMany,
    HowOften,
    Nearby,
    Sighting,
    Similar,
    StillThere,
    Summary,
)
from memory.questions.asking import Questions

__all__ = [
    "Changed",
    "DrivePose",
    "Happened",
    "HowMany",
    "HowOften",
    "Nearby",
    "Questions",
    "Sighting",
    "Similar",
    "StillThere",
    "Summary",
]
