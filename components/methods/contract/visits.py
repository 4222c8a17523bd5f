"""What an epoch of a method visits."""

from __future__ import annotations

from typing import Literal

Visits = Literal["images", "pairs", "rows"]
"""What an epoch visits once: every image, by one of its captions; every pair, by one of its texts; or every row.

A pair is an image with a caption or, where rows are about two images, one image with another in this order. It has as
many rows as it has generated texts.
"""
