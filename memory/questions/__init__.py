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
from memory.questions.comparisons import Comparison, Distance, Related

__all__ = [
    "Changed",
    "Comparison",
    "Distance",
    "DrivePose",
    "Happened",
    "HowMany",
    "HowOften",
    "Nearby",
    "Questions",
    "Related",
    "Sighting",
    "Similar",
    "StillThere",
    "Summary",
]
