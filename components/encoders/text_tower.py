"""The text tower of an open_clip model on token batches shorter than its context."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from open_clip.transformer import text_global_pool
from torch import Tensor, nn


def encode_tokens(model: Any, tokens: Tensor) -> Tensor:
    """Unit text features `[batch, dim]` of token ids `[batch, length]`, `length` up to the model's context.

    The same computation as open_clip's `encode_text`, which insists on the full context length.
    """
    length = tokens.shape[1]
    x = model.token_embedding(tokens) + model.positional_embedding[:length]
    x = model.transformer(x, attn_mask=model.attn_mask[:length, :length])
    x = model.ln_final(x)
    pooled = text_global_pool(x, tokens, model.text_pool_type, eos_token_id=getattr(model, "text_eos_id", None))
    projection = model.text_projection
    if projection is not None:
        pooled = projection(pooled) if isinstance(projection, nn.Linear) else pooled @ projection
    return F.normalize(pooled.float(), dim=-1)
