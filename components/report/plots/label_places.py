"""On which side of its point each label of a plot stands, so that labels hide neither one another nor points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from components.core.metrics import Reals

_WIDTH, _HEIGHT = 300, 380
"""Of the plot's inside on a phone, in pixels: where labels have room there, they have it anywhere."""
_LETTER, _LINE, _GAP = 7, 15, 8
_SIDES = {
    "top right": (1, -1),
    "bottom right": (1, 1),
    "top left": (-1, -1),
    "bottom left": (-1, 1),
    "middle right": (1, 0),
    "middle left": (-1, 0),
    "top center": (0, -1),
    "bottom center": (0, 1),
}
"""Corners first: the point's intervals cross the other sides."""
_Box = tuple[float, float, float, float]


def label_places(points: Reals, labels: Sequence[str]) -> list[str]:
    """plotly's `textposition` of each label, the first of its eight sides that overlaps least.

    Args:
        points: `[labels, 2]`, in the axes' units.
        labels: their texts.
    """
    low, high = points.min(axis=0), points.max(axis=0)
    scaled = (points - low) / np.maximum(high - low, np.finfo(np.float64).tiny)
    pixels = np.column_stack([scaled[:, 0] * _WIDTH * 0.8 + _WIDTH * 0.1, (0.9 - scaled[:, 1] * 0.8) * _HEIGHT])
    taken: list[_Box] = [(x - _GAP, y - _GAP, x + _GAP, y + _GAP) for x, y in pixels]
    chosen = []
    for (x, y), label in zip(pixels, labels, strict=True):
        boxes = {side: _box(x, y, direction, len(label) * _LETTER) for side, direction in _SIDES.items()}
        best = min(boxes, key=lambda side: _cost(boxes[side], taken))
        taken.append(boxes[best])
        chosen.append(best)
    return chosen


def _box(x: float, y: float, direction: tuple[int, int], width: float) -> _Box:
    left = x - width / 2 + direction[0] * (width / 2 + _GAP)
    top = y - _LINE / 2 + direction[1] * (_LINE / 2 + _GAP)
    return left, top, left + width, top + _LINE


def _cost(box: _Box, taken: Sequence[_Box]) -> float:
    """Pixels that `box` shares with others or has outside the plot."""
    outside = (box[2] - box[0]) * (box[3] - box[1]) - _shared(box, (0, 0, _WIDTH, _HEIGHT))
    return outside + sum(_shared(box, other) for other in taken)


def _shared(a: _Box, b: _Box) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
