"""Tests of pictures of results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image


def test_a_picture_has_few_colours(load: Any, tmp_path: Path) -> None:
    pictures, figure, path = load("lib.pictures"), Figure(), tmp_path / "new" / "curve.png"
    figure.subplots().imshow([[0.1 * row * column for row in range(40)] for column in range(40)], cmap="jet")
    pictures.save_picture(figure, path, dpi=50)
    with Image.open(path) as picture:
        assert (picture.mode, picture.size) == ("P", (320, 240))
        red, green, blue = np.asarray(picture.convert("RGB"), int).transpose(2, 0, 1)
    assert np.count_nonzero((red > 200) & (green + blue < 60)) > 100
