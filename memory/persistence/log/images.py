"""Images of memories after a change."""

from __future__ import annotations

from memory.merging.motion import Motion
from memory.persistence import poses
from memory.persistence.rows import SCALARS, TEXTS, Image, PreparedRows, prepare


def image_of(old: Image, prepared: PreparedRows) -> Image:
    """Return the image that updating a row leads to."""
    vectors = {name: blobs[0] for name, (_, blobs, _) in prepared.vectors.items()}
    scalars = tuple(prepared.scalars[name][0] for name in SCALARS)
    texts = tuple(prepared.texts[name][0] for name in TEXTS)
    pose = tuple(prepared.poses[0].tolist())
    covariance = pose[poses.POSE :] or None
    seen = prepared.visits.get(0, ())
    return Image(old.id, scalars, old.access, pose[: poses.POSE], covariance, texts, vectors, seen)


def moved_image(image: Image, motion: Motion) -> Image:
    """Return the image of a memory whose map and clock are moved; vectors stay bit for bit."""
    if motion == Motion():
        return image
    return image_of(image, prepare([motion.memory(image.memory())], {}))._replace(vectors=image.vectors)
