"""What a captioner sees of a picture: the image tower's feature, and those of a coarse grid of places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from components.benchmarks.encoding.encoder_under_test import ImageEncoder
from components.benchmarks.encoding.picture_source import Picture
from components.benchmarks.encoding.published_context import PublishedContext
from components.core.files import content_hash
from components.core.metrics import Features
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import normalise

GRID = 4
"""Places along a side: a tower with more patches has them averaged, so that all keep 17 vectors of a picture."""


def picture_tokens(context: PublishedContext, pictures: Sequence[Picture]) -> Features:
    """Tokens `[pictures, tokens, dim]`: the unit feature, then that of each place, row by row.

    They go through the cache of image features like these. A tower that gives no feature of a place has one token.

    Raises:
        InputError: the encoder has no image tower, or a picture cannot be decoded.
    """
    under_test = context.under_test
    encoder = under_test.encoder
    if under_test.image_tower_sha256 is None or not isinstance(encoder, Encoder) or not sees_places(encoder.model):
        return np.asarray(context.images(pictures))[:, np.newaxis]
    tower = content_hash(under_test.image_tower_sha256, f"{GRID} by {GRID} places")
    seeing = replace(under_test, encoder=_Places(encoder), image_tower_sha256=tower)
    flat = np.asarray(context.image_features.of(seeing, pictures, "embed places"))
    return flat.reshape(len(pictures), -1, encoder.sidecar.embed_dim)


def sees_places(model: Any) -> bool:
    """Whether the image tower is a vision transformer of open_clip, whose patches are mapped as its feature is."""
    return isinstance(getattr(model.visual, "proj", None), nn.Parameter) and hasattr(
        model.visual, "forward_intermediates"
    )


@dataclass(frozen=True)
class _Places(ImageEncoder):
    """An encoder whose vector of a picture is all of its tokens, one after the other."""

    encoder: Encoder

    def embed_texts(self, texts: Sequence[str], batch_size: int = 256, title: str | None = None) -> Features:
        return self.encoder.embed_texts(texts, batch_size, title)

    @torch.inference_mode()
    def embed_pixels(self, pixels: Tensor) -> Features:
        """Tokens `[pictures, tokens * dim]` of pixels `[pictures, 3, size, size]`."""
        tower = self.encoder.model.visual
        found = tower.forward_intermediates(
            pixels if pixels.is_floating_point() else normalise(pixels),
            indices=1,
            normalize_intermediates=True,
            output_fmt="NCHW",
        )
        places = found["image_intermediates"][-1].float()
        side = min(GRID, *places.shape[-2:])
        places = nn.functional.adaptive_avg_pool2d(places, side).flatten(2).transpose(1, 2) @ tower.proj.float()
        whole = nn.functional.normalize(found["image_features"].float(), dim=-1)
        vectors: Features = torch.cat([whole[:, None], places], dim=1).flatten(1).cpu().numpy()
        return vectors
