"""Questions that people ask a robot about what it remembers."""

from memory.questions.answers import (
    Changed,
    DrivePose,
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
from memory.questions.changes import Happened
from memory.questions.comparisons import Comparison, Distance, Related
from memory.questions.ranking import Ordering
from memory.questions.selections.answers import AnswerList, Selection

__all__ = [
    "AnswerList",
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
    "Selection",
    "Sighting",
    "Similar",
    "StillThere",
    "Summary",
    "WhenLeft",
]
