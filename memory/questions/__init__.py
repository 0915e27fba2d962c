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
    WhenLeft,
)
from memory.questions.asking import Questions
from memory.questions.comparisons import Comparison, Distance, Related
from memory.questions.ranking import Ordering

__all__ = [
    "Changed",
    "Comparison",
    "Distance",
    "DrivePose",
    "Happened",
    "HowMany",
    "HowOften",
    "Nearby",
    "Ordering",
    "Questions",
    "Related",
    "Sighting",
    "Similar",
    "StillThere",
    "Summary",
    "WhenLeft",
]
