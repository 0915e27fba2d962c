"""Recognition after a drive: "have I seen this object, have I been here before?", by embeddings."""

from __future__ import annotations

from drive.senses import VECTORS
from memory import MemoryStore
from memory.errors import UnknownMemoryError
from memory.questions import Questions
from memory.questions.recognising import SAME_FROM

NO_VECTORS = "have I seen this before? Unknown, because the detector's weights provide no object embeddings"


def recognition_answers(store: MemoryStore) -> list[str]:
    """Return answers about the newest object and the newest place that have a vector."""
    objects = Questions(store, encoder=VECTORS)
    places = Questions(store, least_similarity=SAME_FROM["scene-encoder"])
    answers = [NO_VECTORS]
    if VECTORS in store.encoders():
        answers = [f"have I seen this before? {objects.seen_before()}"]
    try:
        answers.append(f"have I been here before? {places.seen_before(kind='place')}")
    except UnknownMemoryError as error:
        answers.append(f"have I been here before? {error}")
    return answers
