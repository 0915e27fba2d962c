"""After a drive: have I seen this, have I been here before? By vectors of detector and scene encoder."""

from __future__ import annotations

from drive.perceiving import VECTORS
from memory import MemoryStore
from memory.errors import UnknownMemoryError
from memory.questions import Questions
from memory.questions.recognising import SAME_FROM, SeenBefore

NO_VECTORS = (
    "have I seen this before? The weights of the detector give no vectors of objects, so nothing can say"
    " whether two sights are of one"
)


def recognised(store: MemoryStore) -> list[str]:
    """What is said of the newest object and the newest place that have a vector.

    Args:
        store: of the drive, where places have the scene encoder's vectors as their own.
    """
    objects = Questions(store, encoder=VECTORS)
    places = Questions(store, least_similarity=SAME_FROM["scene-encoder"])
    said = [NO_VECTORS]
    if VECTORS in store.encoders():
        said = [_told("have I seen this before?", objects.seen_before())]
    try:
        said.append(_told("have I been here before?", places.seen_before(kind="place")))
    except UnknownMemoryError as error:
        said.append(f"have I been here before? {error}")
    return said


def _told(question: str, answer: SeenBefore) -> str:
    return f"{question} {answer}"
