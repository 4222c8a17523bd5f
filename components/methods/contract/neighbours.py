"""Which image stands beside a row as one that looks alike: NegCLIP's hard image, CoN-CLIP's distractor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Neighbours:
    """Where a row's neighbour is looked for.

    Attributes:
        count: how many nearest images it is drawn from, anew in each epoch; with 1 it is always the nearest.
        data: folder with the `pairs` and `embeddings` that stages `prepare` and `embed` wrote elsewhere, among whose
            images to train on it is; None for the rows' own images.
    """

    count: int = 3  # as NegCLIP draws it
    data: Path | None = None
