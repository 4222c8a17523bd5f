"""Decodes images and resizes them to the pixels that an image tower expects."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from components.core.pictures.rgb import check_narrow, open_picture, rgb
from components.core.system.errors import InputError

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""Mean and deviation of the pixels of CLIP's training, per channel."""
_MEAN, _STD = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))


Fit = Callable[[Image.Image, int], npt.NDArray[np.uint8]]
"""RGB pixels `[size, size, 3]` of an opened image."""


def decode(images: Sequence[bytes], size: int, names: Sequence[str] | None = None, fit: Fit | None = None) -> Tensor:
    """RGB pixels as uint8 `[images, 3, size, size]`, resized by `fit` (default: `fitted`).

    Raises:
        InputError: an image cannot be decoded; the message gives its name or position.
    """
    pixels = np.empty((len(images), size, size, 3), dtype=np.uint8)
    for row, raw in enumerate(images):
        try:
            with open_picture(raw) as image:
                pixels[row] = (fit or fitted)(image, size)
        except ValueError as error:
            name = names[row] if names is not None else f"row {row}"
            raise InputError(f"image {name} cannot be decoded ({error}): replace it and run `dvc repro`") from None
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)


def normalise(pixels: Tensor) -> Tensor:
    """uint8 pixels to float32 with CLIP's mean and deviation."""
    return (pixels.float() / 255.0 - _MEAN.to(pixels.device)) / _STD.to(pixels.device)


def fitted(image: Image.Image, size: int) -> npt.NDArray[np.uint8]:
    """RGB pixels `[size, size, 3]` of an opened image, equal to torchvision's resize and centre crop.

    A rotation in the EXIF data is ignored, as by open_clip, torchvision and CLIP_benchmark; published figures depend
    on it.

    Raises:
        ValueError: see `check_mode` and `check_narrow`; and as `open_picture` within its block.
    """
    check_narrow(image)
    image = rgb(image)
    if image.size != (size, size):
        # Rounded as by torchvision.
        short = min(image.size)
        width, height = (size if side == short else int(size * side / short) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
        left, top = round((width - size) / 2.0), round((height - size) / 2.0)
        image = image.crop((left, top, left + size, top + size))
    return np.asarray(image)


def squashed(image: Image.Image, size: int) -> npt.NDArray[np.uint8]:
    """RGB pixels `[size, size, 3]` of an opened image; both sides are resized, and their ratio is lost."""
    return np.asarray(rgb(image).resize((size, size), Image.Resampling.BILINEAR))


def as_imagenet(pixels: Tensor) -> Tensor:
    """uint8 pixels to float32 with ImageNet's mean and deviation."""
    shares, statistics = pixels.float() / 255.0, ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    mean, deviation = (shares.new_tensor(three).view(3, 1, 1) for three in statistics)
    return (shares - mean) / deviation
