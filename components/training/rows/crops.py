"""Random resized crops of images while the image tower trains, as CLIP, open_clip and NegCLIP train.

They cut out of the original picture; here it is the square that images are prepared as, whose margins are gone already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms.v2.functional import InterpolationMode, resized_crop

_RATIO = math.log(3 / 4), math.log(4 / 3)
_TRIES = 10
"""As in torchvision's `RandomResizedCrop`, which leaves an image whole after so many boxes that do not fit."""


@dataclass(frozen=True)
class Crops:
    """Crops that follow from seed, epoch and sample alone, however batches and ranks are.

    Attributes:
        least: the smallest share of an image's area that is left.
    """

    least: float
    seed: int

    def of(self, pixels: Tensor, names: list[str], epoch: int) -> Tensor:
        """Images `[images, 3, size, size]`, uint8, each cut and resized again (bicubic)."""
        return torch.stack([self._one(image, name, epoch) for image, name in zip(pixels, names, strict=True)])

    def _one(self, image: Tensor, name: str, epoch: int) -> Tensor:
        rng, size = np.random.default_rng([self.seed, epoch, crc32(name.encode())]), image.shape[-1]
        for _ in range(_TRIES):
            area, ratio = size**2 * rng.uniform(self.least, 1), math.exp(rng.uniform(*_RATIO))
            width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if max(width, height) <= size:
                top, left = (int(rng.integers(size - side + 1)) for side in (height, width))
                cut: Tensor = resized_crop(image, top, left, height, width, [size, size], InterpolationMode.BICUBIC)
                return cut
        return image
