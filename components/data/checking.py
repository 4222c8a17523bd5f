"""Whether an encoded picture can be used: all of its pixels can be decoded, and are not too many."""

from __future__ import annotations

import io

from PIL import Image, UnidentifiedImageError

from components.core.rgb import check_mode
from components.data.source import UnusableError

_MAX_PIXELS = 40_000_000


def check_picture(raw: bytes, name: str) -> bytes:
    """The bytes of an image, of which all pixels can be decoded; `name` stands in messages.

    Raises:
        UnusableError: they cannot, or are too many, or nothing says which is white (`check_mode`).
    """
    try:
        with Image.open(io.BytesIO(raw)) as image:
            if image.width * image.height > _MAX_PIXELS:
                raise UnusableError(f"{name} has {image.width}x{image.height} pixels: shrink it below {_MAX_PIXELS}")
            check_mode(image)
            image.verify()
        # `verify` does not see that a JPEG is cut off; reading all of one at an eighth of its size costs little.
        with Image.open(io.BytesIO(raw)) as image:
            image.draft("RGB", (1, 1))
            image.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        # Pillow would name the address of the buffer.
        reason = "no known format" if isinstance(error, UnidentifiedImageError) else error
        raise UnusableError(f"{name} is no readable image ({reason}): replace or remove it") from None
    return raw
