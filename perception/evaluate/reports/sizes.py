"""Table of size offsets by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perception.evaluate.sizes import SizeFit
from sparse_core.common.table import Table, cell


def sizes_table(fits: Mapping[str, SizeFit], saved: Sequence[str]) -> Table:
    """Return the offsets of each class and the overlap before and after them.

    Args:
        fits: the offsets.
        saved: classes whose offsets were saved.
    """
    rows = [
        (
            name,
            fit.boxes,
            *(cell(value, "+.2f") for value in fit.offsets_m),
            cell(fit.overlap, ".3f"),
            cell(fit.overlap_fitted, ".3f"),
            "yes" if name in saved else "no",
        )
        for name, fit in fits.items()
    ]
    heads = ("class", "boxes", "length", "width", "height", "IoU", "IoU\nfitted", "saved")
    return Table(
        heads,
        rows,
        title="Metres to add to boxes",
        right=heads[1:],
        note="IoU in space with labels; fitted: with the offsets of the other half of the frames.",
    )
