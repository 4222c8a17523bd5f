"""Computes text features of any encoder from token batches shorter than its context."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from open_clip.hf_model import HFTextEncoder
from open_clip.transformer import text_global_pool
from torch import Tensor, nn

from components.encoders.adapter.language_models.tower import LanguageTower
from components.encoders.adapter.texts.packed_text import can_pack, end_states

_ENDS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "argmax": lambda tokens, _: tokens.argmax(dim=-1),
    "eos": lambda tokens, end: (tokens == end).int().argmax(dim=-1),
}
"""Position of each text's end token `[batch]`, by the name of open_clip's pooling."""


def text_features(model: Any, tokens: Tensor) -> Tensor:
    """Raw text features `[batch, dim]`, float32, of token ids `[batch, length]`, `length` up to the model's context.

    Args:
        model: an `open_clip.CLIP`, which is its own text tower, or a model whose text tower is `model.text`.
        tokens: padded on the right; masked towers know padding by its id.
    """
    tower = getattr(model, "text", model)
    features: Tensor = tower(tokens) if isinstance(tower, LanguageTower | HFTextEncoder) else _causal(tower, tokens)
    return features.float()


def encode_tokens(model: Any, tokens: Tensor) -> Tensor:
    """Unit text features `[batch, dim]` of token ids `[batch, length]`."""
    return F.normalize(text_features(model, tokens), dim=-1)


def _causal(tower: Any, tokens: Tensor) -> Tensor:
    """open_clip's own text tower; the same computation as its `encode_text`, which insists on the full context."""
    # An open_clip.CLIP holds its text tower's settings under other names than a TextTransformer does.
    pool, end = (
        (tower.pool_type, tower.eos_id) if hasattr(tower, "pool_type") else (tower.text_pool_type, tower.text_eos_id)
    )
    if pool in _ENDS and can_pack(tower, tokens):
        pooled = tower.ln_final(end_states(tower, tokens, _ENDS[pool](tokens, end)))
    else:
        length = tokens.shape[1]
        x = tower.token_embedding(tokens) + tower.positional_embedding[:length]
        x = tower.transformer(x, attn_mask=tower.attn_mask[:length, :length])
        pooled = text_global_pool(tower.ln_final(x), tokens, pool, eos_token_id=end)
    projection = tower.text_projection
    if projection is not None:
        pooled = projection(pooled) if isinstance(projection, nn.Linear) else pooled @ projection
    features: Tensor = pooled
    return features
