"""Early metrics: what the encoder does on training rows that it does not train on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from components.core.files import content_hash
from components.core.metrics import average_overlap, top_k
from components.encoders.adapter.texts.text_tower import text_features
from components.encoders.adapter.texts.tokens import Tokenizer, trimmed

RECALL_AT, OVERLAP_AT = 5, 10
Vectors = npt.NDArray[np.float32]


def choose_held_out(rows: pd.DataFrame, count: int, seed: int) -> frozenset[str]:
    """Ids of up to `count` images, and at most a tenth of all, to hold out: the same for all methods with these rows.

    An image's place in the draw follows from the smallest id of its pairs.

    Args:
        rows: with the columns `id` and `image_id`.
    """
    first = rows.groupby("image_id")["id"].min()
    distinct = sorted(first.index, key=lambda image: content_hash(str(seed), first[image]))
    return frozenset(distinct[: min(count, len(distinct) // 10)])


@dataclass(frozen=True)
class HeldOut:
    """Queries with their images.

    Attributes:
        captions: one text per image.
        paraphrases: another text of the same meaning per image, or None where there are none.
        gallery: gives unit image features `[images, dim]`, the queries' own images first and in order.
    """

    captions: list[str]
    paraphrases: list[str] | None
    gallery: Callable[[], Vectors]

    def score(self, model: Any, tokenizer: Tokenizer, device: str) -> dict[str, float]:
        """Text-to-image R@5 of the captions, and AO@10 of captions and paraphrases, in [0, 1]."""
        gallery = self.gallery()
        captions = embed(model, tokenizer, self.captions, device)
        found = top_k(captions, gallery, min(OVERLAP_AT, len(gallery)))
        own = np.arange(len(captions))[:, None]
        scores = {f"validation/r_at_{RECALL_AT}": float((found[:, :RECALL_AT] == own).any(axis=1).mean())}
        if self.paraphrases is not None and len(gallery) >= OVERLAP_AT:
            others = top_k(embed(model, tokenizer, self.paraphrases, device), gallery, OVERLAP_AT)
            scores[f"validation/ao_at_{OVERLAP_AT}"] = float(average_overlap(found, others, OVERLAP_AT).mean())
        return scores


@torch.no_grad()
def embed(model: Any, tokenizer: Tokenizer, texts: list[str], device: str, batch_size: int = 256) -> Vectors:
    """Unit text features `[texts, dim]`; unlike inference mode this may share modules with training."""
    tokens = tokenizer(texts)
    lengths = tokenizer.lengths(tokens)
    parts: list[Tensor] = []
    for start in range(0, len(texts), batch_size):
        rows = slice(start, start + batch_size)
        parts.append(F.normalize(text_features(model, trimmed(tokens[rows], lengths[rows]).to(device)), dim=-1).cpu())
    vectors: Vectors = torch.cat(parts).numpy()
    return vectors
