"""The preparation of pictures: how an encoded picture becomes the input of an image tower."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt

from components.core.pictures.rgb import check_mode, check_narrow, check_size, open_picture, rgb, upright
from components.core.system.errors import InputError

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

Channels = tuple[float, float, float]
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
"""Mean and deviation of the pixels of CLIP's training, per channel."""
SQUASHED: Mapping[str, Any] = {
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
    "interpolation": "bilinear",
    "resize_mode": "squash",
}
"""SemCLIP's released code (src/dataset.py) prepares pictures so for every image tower, instead of as the tower learned:
both sides are resized, and mean and deviation are ImageNet's."""


class Preparation(BaseModel):
    """How a picture becomes an image tower's input, in the words of open_clip's `preprocess_cfg`.

    Attributes:
        size: side length of the square input in pixels.
        mean: of the tower's pixels per channel, of 1.
        std: their deviation.
        resize_mode: `shortest` resizes the shorter side and crops the middle, `longest` resizes the longer side and
            fills the rest with `fill_color`, `squash` resizes both sides.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: PositiveInt
    mean: Channels = MEAN
    std: tuple[PositiveFloat, PositiveFloat, PositiveFloat] = STD
    interpolation: Literal["bicubic", "bilinear", "random"] = "bicubic"
    resize_mode: Literal["shortest", "longest", "squash"] = "shortest"
    fill_color: int = 0

    def changed(self, values: Mapping[str, Any]) -> Preparation:
        """The preparation with other values."""
        return Preparation.model_validate(self.model_dump() | dict(values))

    def decode(self, images: Sequence[bytes], names: Sequence[str] | None = None, *, turned: bool = True) -> Tensor:
        """RGB pixels of a user's encoded images as uint8 `[images, 3, size, size]`.

        Args:
            turned: whether they are turned upright as their EXIF data say.
        """
        import torch

        pixels = np.empty((len(images), self.size, self.size, 3), dtype=np.uint8)
        for row, raw in enumerate(images):
            try:
                with open_picture(raw) as image:
                    check_size(image)
                    pixels[row] = self.fitted(upright(image) if turned else image)
            except ValueError as error:
                name = names[row] if names is not None else f"row {row}"
                raise InputError(f"image {name} cannot be decoded ({error}): replace it and run `dvc repro`") from None
        return torch.from_numpy(pixels).permute(0, 3, 1, 2)

    def fitted(self, image: Image.Image) -> npt.NDArray[np.uint8]:
        """RGB pixels `[size, size, 3]` of an opened image, equal to those of open_clip's transform.

        The picture is not turned by its EXIF data: open_clip, torchvision and CLIP_benchmark ignore them, and figures
        of published test sets depend on it. As in open_clip, a picture is resized in its own mode; but 16 bits of grey
        are scaled first.

        Raises:
            ValueError: see `check_mode` and `check_narrow`; and as `open_picture` within its block.
        """
        check_narrow(image)
        check_mode(image)
        if image.mode.startswith("I;16"):
            image = rgb(image)
        for step in _steps(self):
            image = step(image)
        return np.asarray(rgb(image))

    def normalise(self, pixels: Tensor) -> Tensor:
        """The tower's input, float32, of uint8 pixels `[images, 3, size, size]`."""
        shares = pixels.float() / 255.0
        mean, std = (shares.new_tensor(values).view(3, 1, 1) for values in (self.mean, self.std))
        return (shares - mean) / std

    def differences(self) -> dict[str, Any]:
        """The values that are not CLIP's, by name, without the size."""
        return self.model_dump(exclude={"size"}, exclude_defaults=True)


CLIP = Preparation(size=224)
"""The preparation that CLIP's towers of 224 pixels were trained with."""


@cache
def _steps(preparation: Preparation) -> list[Any]:
    """open_clip's resizing and cropping."""
    from open_clip.transform import PreprocessCfg, image_transform_v2

    # The last two steps convert to a normalised tensor, which `normalise` does on the tower's device.
    steps: list[Any] = image_transform_v2(PreprocessCfg(**preparation.model_dump()), is_train=False).transforms[:-2]
    return steps
