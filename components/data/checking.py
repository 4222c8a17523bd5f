"""Whether an encoded picture can be used: all of its pixels can be decoded, and are not too many."""

from __future__ import annotations

from components.core.rgb import check_mode, check_size, open_picture, rgb
from components.data.source import UnusableError


def check_picture(raw: bytes, name: str) -> bytes:
    """The bytes of an image, of which all pixels can be decoded; `name` stands in messages.

    Raises:
        UnusableError: they cannot, or see `check_size` and `check_mode`.
    """
    try:
        with open_picture(raw) as image:
            check_size(image)
            check_mode(image)
            image.verify()
        # `verify` does not see that a JPEG is cut off; reading all of one at an eighth of its size costs little.
        with open_picture(raw) as image:
            image.draft("RGB", (1, 1))
            rgb(image)
    except ValueError as error:
        raise UnusableError(f"{name} is no readable image ({error}): replace or remove it") from None
    return raw
