"""How a picture becomes the input of an image tower, where a protocol has it otherwise than CLIP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from PIL import Image

if TYPE_CHECKING:
    from torch import Tensor

_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's, of red, green and blue."""


@dataclass(frozen=True)
class Preparation:
    """One way.

    Attributes:
        name: tells its features from those of others in the cache; empty for CLIP's own.
        fitted: RGB pixels `[size, size, 3]` of an opened image; raises as `components.encoders.adapter.images.fitted`.
        normalised: the tower's input of uint8 pixels `[images, 3, size, size]`; uint8 is left for the tower to do.
    """

    name: str
    fitted: Callable[[Image.Image, int], npt.NDArray[np.uint8]]
    normalised: Callable[[Tensor], Tensor]


def _fitted(image: Image.Image, size: int) -> npt.NDArray[np.uint8]:
    from components.encoders.adapter.images import fitted

    return fitted(image, size)


def _squashed(image: Image.Image, size: int) -> npt.NDArray[np.uint8]:
    from components.encoders.adapter.rgb import rgb

    return np.asarray(rgb(image).resize((size, size), Image.Resampling.BILINEAR))


def _as_imagenet(pixels: Tensor) -> Tensor:
    shares = pixels.float() / 255.0
    mean, deviation = (shares.new_tensor(three).view(3, 1, 1) for three in (_MEAN, _DEVIATION))
    return (shares - mean) / deviation


CLIP = Preparation("", _fitted, lambda pixels: pixels)
"""The shorter side resized, the middle cut out, CLIP's mean and deviation."""
SQUASHED = Preparation("squashed, ImageNet's mean", _squashed, _as_imagenet)
"""Both sides resized, whatever their ratio, and ImageNet's mean and deviation (SemCLIP's src/dataset.py)."""
