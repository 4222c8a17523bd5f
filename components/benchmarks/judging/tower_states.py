"""What a diffusion model reads of a text tower: the states of all tokens before the last block, and pooled features."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from open_clip.transformer import text_global_pool
from torch import Tensor, nn

from components.core.errors import InputError


@torch.inference_mode()
def tower_states(model: Any, tokens: npt.NDArray[np.integer[Any]], name: str) -> tuple[Tensor, Tensor]:
    """States `[texts, length, width]` that the last block is given, and raw projected features `[texts, dim]`.

    Stable Diffusion XL takes the last but one hidden states of its text towers, without a final norm.

    Args:
        model: an `open_clip.CLIP`, or a model whose causal text tower is `model.text`.
        tokens: ids of the full context `[texts, length]`.
        name: how errors call the encoder.

    Raises:
        InputError: the text tower is not open_clip's causal one.
    """
    tower = getattr(model, "text", model)
    if not hasattr(tower, "token_embedding") or not hasattr(tower, "attn_mask"):
        raise InputError(f"encoder '{name}' has no causal text tower of open_clip: choose one for image generation")
    ids = torch.from_numpy(tokens).long().to(tower.positional_embedding.device)
    length = ids.shape[1]
    states = tower.token_embedding(ids) + tower.positional_embedding[:length]
    mask = tower.attn_mask[:length, :length]
    blocks = list(tower.transformer.resblocks)
    for block in blocks[:-1]:
        states = block(states, attn_mask=mask)
    last = tower.ln_final(blocks[-1](states, attn_mask=mask))
    pool, end = (
        (tower.pool_type, tower.eos_id) if hasattr(tower, "pool_type") else (tower.text_pool_type, tower.text_eos_id)
    )
    pooled = text_global_pool(last, ids, pool, eos_token_id=end)
    projection = tower.text_projection
    if projection is not None:
        pooled = projection(pooled) if isinstance(projection, nn.Linear) else pooled @ projection
    return states, pooled
