"""Encoders of images and texts in one vector space, so that text finds images.

encoder = open_image_text_encoder("google/siglip-base-patch16-224")
vectors = encoder.encode_images(["crop.jpg"])
found = encoder.encode_texts(["a red lorry"]) @ vectors.T
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from memory.encode.class_names import ClassNameEncoder
from memory.encode.image import Image, check_images, pixels
from memory.encode.text import check_texts
from memory.encode.two_four import Precision, Sparsity, change_network, check_network_options

#: Name of the encoder that needs no download.
OFFLINE = "class-names"
#: Prefix of models for open_clip: MobileCLIP and most others.
_OPEN_CLIP = ("hf-hub:", "local-dir:")


class ImageTextEncoder(Protocol):
    """Protocol of encoders of images and texts.

    Attributes:
        name: name it was opened by, with the suffix `` 2:4`` for 2:4 layers; stores keep its vectors
            under this name.
        dim: vector length.
    """

    name: str
    dim: int

    def encode_images(self, images: Iterable[Image], *, batch_size: int = 16) -> NDArray[np.float32]:
        """Return (images, dim) float32 unit vectors; see :class:`memory.encode.ImageEncoder`."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (texts, dim) float32 unit vectors, similar to those of matching images."""
        ...


def open_image_text_encoder(
    name: str | Path = OFFLINE,
    *,
    device: torch.device | str = "cpu",
    precision: Precision = "float32",
    sparsify: Sparsity | None = None,
    calibration: PruningExamples | None = None,
) -> ImageTextEncoder:
    """Open an encoder by name.

    Args:
        name: ``"class-names"`` for :class:`ClassNameEncoder`, which never downloads; a folder with a
            model of transformers (SigLIP, CLIP: ``config.json``) or of open_clip (MobileCLIP:
            ``open_clip_config.json``); or a model of the Hugging Face hub, which is downloaded once:
            ``google/siglip-base-patch16-224``, ``hf-hub:apple/MobileCLIP2-S0``.
        device: device of the networks.
        precision, sparsify: see :class:`memory.encode.TextEncoder`; not for ``"class-names"``.
        calibration: typical images and texts; ``None`` keeps the largest weights of 2:4 layers.

    Raises:
        ImportError: a package is missing.
        ValueError: the model cannot be read, is not an image-text model, or an option is not supported.
    """
    check_network_options(precision, sparsify, calibration is not None)
    options = _Options(torch.device(device), precision, sparsify, calibration or PruningExamples((), ()))
    if str(name) == OFFLINE:
        if precision != "float32" or sparsify is not None:
            raise ValueError(
                f"{OFFLINE!r} has neither precision nor sparsify: its images take convolutions only, and for"
                " its texts there is TextEncoder"
            )
        return ClassNameEncoder(device=device)
    folder = Path(name)
    if folder.is_dir():
        if (folder / "open_clip_config.json").is_file():
            return OpenClipEncoder(f"local-dir:{folder}", options)
        if not (folder / "config.json").is_file():
            raise ValueError(
                f"{folder}: no config.json or open_clip_config.json found. Give a folder with a"
                " transformers or open_clip model"
            )
    if str(name).startswith(_OPEN_CLIP):
        return OpenClipEncoder(str(name), options)
    return TransformersEncoder(name, options)


class PruningExamples(NamedTuple):
    """Typical images and texts, by which 2:4 weights are chosen."""

    images: Sequence[Image]
    texts: Sequence[str]


class _Options(NamedTuple):
    device: torch.device
    precision: Precision
    sparsify: Sparsity | None
    calibration: PruningExamples


class _HubEncoder:
    """Base of the encoders of both libraries."""

    def __init__(self, name: str, model: torch.nn.Module, options: _Options) -> None:
        self.name = name if options.sparsify is None else f"{name} {options.sparsify}"
        self.device = options.device
        self._dtype = torch.float32
        self._model: Any = model.eval().to(self.device)
        self.dim = int(self.encode_texts([""]).shape[1])
        images, texts = options.calibration
        check_images(images, 1)
        check_texts(texts)
        if options.sparsify is not None and bool(len(images)) != bool(len(texts)):
            raise ValueError("calibration needs images and texts, because both halves are pruned")

        def both(at: int) -> None:
            self.encode_images(images[at : at + 16])
            self.encode_texts(texts[at : at + 16])

        typical = [partial(both, at) for at in range(0, max(len(images), len(texts)), 16)]
        change_network(model, precision=options.precision, sparsify=options.sparsify, typical=typical)
        self._dtype = getattr(torch, options.precision)

    def encode_images(self, images: Iterable[Image], *, batch_size: int = 16) -> NDArray[np.float32]:
        """See :class:`ImageTextEncoder`."""
        check_images(images, batch_size)
        source, found = iter(images), []
        while batch := [pixels(image) for image in islice(source, batch_size)]:
            found.append(self._unit(lambda batch=batch: self._of_images(batch)))  # type: ignore[misc]
        return np.concatenate(found) if found else np.zeros((0, self.dim), np.float32)

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See :class:`ImageTextEncoder`."""
        check_texts(texts)
        if not len(texts):
            return np.zeros((0, self.dim), np.float32)
        return self._unit(lambda: self._of_texts(list(texts)))

    @torch.inference_mode()
    def _unit(self, compute: Callable[[], Tensor]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = functional.normalize(compute().float(), dim=1).cpu().numpy()
        return vectors

    def _of_images(self, images: list[NDArray[np.uint8]]) -> Tensor:
        raise NotImplementedError

    def _of_texts(self, texts: list[str]) -> Tensor:
        raise NotImplementedError


class TransformersEncoder(_HubEncoder):
    """Model of transformers with ``get_image_features`` and ``get_text_features``: SigLIP, CLIP and others.

    Args:
        name: folder, or name on the hub.
        options: device, precision and sparsity.

    Raises:
        ImportError: transformers is missing.
        ValueError: the model cannot be read, or is not an image-text model.
    """

    def __init__(self, name: str | Path, options: _Options) -> None:
        library = _library("transformers")
        local = Path(name).is_dir()
        try:
            model = library.AutoModel.from_pretrained(str(name), local_files_only=local)
            self._tokens = library.AutoTokenizer.from_pretrained(str(name), local_files_only=local)
            self._images = library.AutoImageProcessor.from_pretrained(str(name), local_files_only=local)
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f"{name}: transformers cannot read this model: {_first_line(error)}") from error
        if not hasattr(model, "get_image_features") or not hasattr(model, "get_text_features"):
            raise ValueError(f"{name}: {type(model).__name__} is not a model of images and texts")
        longest = getattr(model.config.text_config, "max_position_embeddings", None)
        # SigLIP needs texts of one length; other models use a mask.
        padding = "max_length" if "siglip" in model.config.model_type else True
        self._padded = {"padding": padding, "truncation": True, "max_length": longest}
        super().__init__(str(name), model, options)

    def _of_images(self, images: list[NDArray[np.uint8]]) -> Tensor:
        given = self._images(images=images, return_tensors="pt").to(self.device, self._dtype)
        return _features(self._model.get_image_features(**given))

    def _of_texts(self, texts: list[str]) -> Tensor:
        given = self._tokens(texts, return_tensors="pt", **self._padded).to(self.device)
        return _features(self._model.get_text_features(**given))


class OpenClipEncoder(_HubEncoder):
    """Model of open_clip: MobileCLIP and most others.

    Args:
        name: ``hf-hub:NAME`` or ``local-dir:FOLDER``.
        options: device, precision and sparsity.

    Raises:
        ImportError: open_clip is missing.
        ValueError: the model cannot be read.
    """

    def __init__(self, name: str, options: _Options) -> None:
        library = _library("open_clip")
        try:
            model, self._prepare = library.create_model_from_pretrained(name)
            self._tokens = library.get_tokenizer(name)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise ValueError(f"{name}: open_clip cannot read this model: {_first_line(error)}") from error
        super().__init__(name.removeprefix("local-dir:"), model, options)

    def _of_images(self, images: list[NDArray[np.uint8]]) -> Tensor:
        from PIL import Image as Pillow

        prepared = [self._prepare(Pillow.fromarray(image)) for image in images]
        found: Tensor = self._model.encode_image(torch.stack(prepared).to(self.device, self._dtype))
        return found

    def _of_texts(self, texts: list[str]) -> Tensor:
        found: Tensor = self._model.encode_text(self._tokens(texts).to(self.device))
        return found


def _features(found: Any) -> Tensor:
    """Return the features, which newer versions wrap in an object."""
    features: Tensor = getattr(found, "pooler_output", found)
    return features


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"models of images and texts need {name}: pip install 'sparsight[image-text]';"
            f" the import failed with: {error}"
        ) from error
