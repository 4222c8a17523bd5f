"""Pixels are those that the field's own preprocessing gives."""

from __future__ import annotations

import io

import numpy as np
import open_clip
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from components.encoders.images import decode, normalise


@given(width=st.integers(5, 90), height=st.integers(5, 90), size=st.sampled_from([16, 17, 24]))
def test_pixels_equal_open_clips_transform(width: int, height: int, size: int) -> None:
    generator = np.random.default_rng(width * 100 + height)
    image = Image.fromarray(generator.integers(0, 256, (height, width, 3)).astype(np.uint8))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    wanted = open_clip.image_transform(size, is_train=False)(image)
    found = normalise(decode([buffer.getvalue()], size))[0]
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)


def test_a_bomb_is_refused() -> None:
    from components.errors import InputError

    buffer = io.BytesIO()
    Image.new("1", (20_000, 2)).save(buffer, "PNG")
    with pytest.raises(InputError, match="too long and narrow"):
        decode([buffer.getvalue()], 224)
