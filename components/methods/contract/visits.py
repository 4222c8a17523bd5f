"""What an epoch of a method visits."""

from __future__ import annotations

from typing import Literal

Visits = Literal["images", "pairs"]
"""What an epoch visits once: every image, by one of its captions, or every pair, whatever else shows its image.

A pair is an image with a caption or, where rows are about two images, one image with another in this order.
"""
