"""Pictures of an index, small enough for a page."""

from __future__ import annotations

import io
from functools import lru_cache

from components.core.errors import InputError
from components.core.rgb import check_size, open_picture, rgb
from components.index.image_index import ImageIndex

SIDE = 192
"""Pixels of a thumbnail's longer side at most."""
LARGE = 768
_KEPT = 2048


class Thumbnails:
    """JPEGs of an index's pictures by row; the last few thousand are remembered."""

    def __init__(self, index: ImageIndex) -> None:
        self._index = index
        self.small = lru_cache(_KEPT)(self._small)

    def large(self, row: int) -> bytes:
        """The picture, at most `LARGE` pixels long; raises as `small`."""
        return self._made(row, LARGE)

    def _small(self, row: int) -> bytes:
        """The picture, at most `SIDE` pixels long.

        Raises:
            InputError: there is none, or it cannot be decoded.
        """
        return self._made(row, SIDE)

    def _made(self, row: int, side: int) -> bytes:
        encoded = self._index.picture(row)
        try:
            with open_picture(encoded) as opened:
                check_size(opened)
                small = rgb(opened)
        except ValueError as error:
            raise InputError(f"the picture of row {row} cannot be decoded ({error})") from None
        small.thumbnail((side, side))
        stream = io.BytesIO()
        small.save(stream, "JPEG", quality=85)
        return stream.getvalue()
