"""The towers as one module from tokens and pixels to raw features, so that DDP can wrap them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from components.encoders.adapter.images import normalise
from components.encoders.adapter.texts.text_tower import text_features

Passed = tuple[Tensor | None, Tensor | None]
"""Features of a pass's texts and of its images."""


class Towers(nn.Module):
    """An encoder's towers.

    Args:
        model: has `encode_image` and a text side that `text_features` knows.
        autocast: element type of mixed precision; None for float32.
        compiled: whether torch compiles the towers; worth it on a GPU for runs of more than a few minutes.
    """

    def __init__(self, model: Any, device: str, autocast: torch.dtype | None = None, compiled: bool = False) -> None:
        super().__init__()
        self.model = model
        self._device_type = device.split(":", maxsplit=1)[0]
        self._autocast = autocast
        self._text: Callable[[Any, Tensor], Tensor] = text_features
        self._image: Callable[[Tensor], Tensor] = model.encode_image
        if compiled:
            self._text = torch.compile(text_features, dynamic=True)
            self._image = torch.compile(model.encode_image)

    def forward(self, texts: Tensor | None, pixels: Tensor | None) -> Passed:
        """Raw float32 features of texts `[texts, dim]` and of images `[images, dim]`; None for what was not given."""
        with torch.autocast(self._device_type, self._autocast, enabled=self._autocast is not None):
            of_texts = None if texts is None else self._text(self.model, texts).float()
            of_images = None if pixels is None else self._image(normalise(pixels)).float()
        return of_texts, of_images
