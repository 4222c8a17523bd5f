"""Text features of any encoder from token batches shorter than its context.

On a CPU, a language model computes little padding, because its batches have texts of similar length. CLIP's causal
tower computes no padding: linear layers and norms process the concatenated tokens of all texts, `[tokens, width]`.
Only attention uses texts, `[texts, length]`. The last block is computed only for end tokens; no others are used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from components.encoders.adapter.language_tower import LanguageTower
from components.encoders.adapter.precision import Int8Attention

_ENDS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "argmax": lambda tokens, _: tokens.argmax(dim=-1),
    "eos": lambda tokens, end: (tokens == end).int().argmax(dim=-1),
}
"""Position of each text's end token `[batch]`, by the name of open_clip's pooling."""
_MULTIPLE = 64
"""Tokens of a packed batch in mixed precision are a multiple of it, so that shapes repeat."""
_TOGETHER = 32
"""Texts of similar length per pass through a language model on a CPU."""


def text_features(model: Any, tokens: Tensor) -> Tensor:
    """Raw text features `[batch, dim]`, float32, of token ids `[batch, length]`, `length` up to the model's context.

    Args:
        model: an `open_clip.CLIP`, which is its own text tower, or a model whose text tower is `model.text`.
        tokens: padded on the right; masked towers detect padding by its id.
    """
    tower = getattr(model, "text", model)
    if isinstance(tower, LanguageTower):
        features = _by_length(tower, tokens)
    else:
        # open_clip's tower around a Hugging Face model has no embeddings of its own.
        features = _open_clip(tower, tokens) if hasattr(tower, "token_embedding") else _first(tower(tokens))
    return features.float()


def encode_tokens(model: Any, tokens: Tensor) -> Tensor:
    """Unit text features `[batch, dim]` of token ids `[batch, length]`."""
    return F.normalize(text_features(model, tokens), dim=-1)


def _by_length(tower: LanguageTower, tokens: Tensor) -> Tensor:
    """The tower's features of each text; on a GPU in one batch, which is fastest there."""
    if tokens.device.type != "cpu" or torch.compiler.is_compiling():
        return tower(tokens)  # type: ignore[no-any-return]
    lengths = (tokens != tower.pad_id).sum(dim=1)
    order = lengths.argsort(stable=True)
    alike = torch.split(order, _TOGETHER)
    features = torch.cat([tower(tokens[rows, : int(lengths[rows].max())]) for rows in alike])
    return features[order.argsort()]


def _first(features: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    """The pooled features of a tower that also returns those of its tokens."""
    return features[0] if isinstance(features, tuple) else features


def _pooling(tower: Any) -> tuple[str, int] | None:
    """Name in `_ENDS` and end token of open_clip's text tower; None if it is not causal or pools otherwise."""
    # An open_clip.CLIP holds its text tower's settings under other names than a TextTransformer does.
    pool, end = (
        (tower.pool_type, tower.eos_id) if hasattr(tower, "pool_type") else (tower.text_pool_type, tower.text_eos_id)
    )
    causal = tower.attn_mask is not None and getattr(tower, "cls_emb", None) is None
    return (pool, end) if causal and pool in _ENDS else None


def _open_clip(tower: Any, tokens: Tensor) -> Tensor:
    """open_clip's text tower; the same computation as its `encode_text`, which needs the full context.

    A tower that is causal and pools at the end token skips padding; every other one gets the full context.
    """
    pooling = _pooling(tower)
    if pooling is None:
        return _first(tower.encode_text(tokens) if hasattr(tower, "encode_text") else tower(tokens))
    pool, end = pooling
    if can_pack(tower, tokens):
        pooled = tower.ln_final(end_states(tower, tokens, _ENDS[pool](tokens, end)))
    else:
        from open_clip.transformer import text_global_pool

        length = tokens.shape[1]
        x = tower.token_embedding(tokens) + tower.positional_embedding[:length]
        for block in tower.transformer.resblocks:
            x = block(x, attn_mask=tower.attn_mask[:length, :length])
        pooled = text_global_pool(tower.ln_final(x), tokens, pool, eos_token_id=end)
    projection = tower.text_projection
    if projection is not None:
        pooled = projection(pooled) if isinstance(projection, nn.Linear) else pooled @ projection
    features: Tensor = pooled
    return features


@dataclass(frozen=True)
class Packing:
    """Indices of the tokens of texts, without padding.

    Attributes:
        places: of each token in the flattened `[texts * length]`, `[tokens]`; a few may be padding.
        ends: of each text's end token among these, `[texts]`.
        lengths: tokens of each text, `[texts]`.
        length: of the longest.
    """

    places: Tensor
    ends: Tensor
    lengths: Tensor
    length: int

    @staticmethod
    def of(ends: Tensor, multiple: int = 1) -> Packing:
        """The packing of texts with end tokens at the positions `ends` `[texts]`.

        The number of tokens becomes a multiple of `multiple` by unused padding, if there is enough.
        """
        lengths = ends + 1
        length = int(lengths.max())
        counts = (torch.arange(length, device=ends.device) < lengths[:, None]).flatten()
        counts[counts.logical_not().nonzero()[: -int(lengths.sum()) % multiple]] = True
        firsts = torch.arange(0, len(counts), length, device=ends.device)
        return Packing(counts.nonzero().squeeze(1), counts.cumsum(0)[firsts + ends] - 1, lengths, length)

    def padded(self, rows: Tensor) -> Tensor:
        """Packed rows `[tokens, width]` as `[texts, length, width]`, zero for padding."""
        texts = len(self.ends)
        flat = rows.new_zeros(texts * self.length, rows.shape[1]).index_copy(0, self.places, rows)
        return flat.view(texts, self.length, -1)

    def packed(self, rows: Tensor) -> Tensor:
        """The inverse of `padded`."""
        return rows.flatten(0, 1)[self.places]


def can_pack(tower: Any, tokens: Tensor) -> bool:
    """Whether a causal tower has open_clip's plain blocks, and packing pays.

    It does not on a GPU: packing must wait for the lengths, and a compiler needs fixed shapes.
    """
    from open_clip.transformer import ResidualAttentionBlock

    plain = all(type(block) is ResidualAttentionBlock for block in tower.transformer.resblocks)
    return plain and tokens.device.type == "cpu" and not torch.compiler.is_compiling()


def end_states(tower: Any, tokens: Tensor, ends: Tensor) -> Tensor:
    """The transformer's states at each text's end token, `[texts, width]`.

    Args:
        tokens: ids `[texts, length]`.
        ends: the end token's position in each text, `[texts]`.
    """
    # In bfloat16 torch generates machine code for each new shape of a product.
    packing = Packing.of(ends, _MULTIPLE if torch.is_autocast_enabled("cpu") else 1)
    *blocks, last = tower.transformer.resblocks
    x: Tensor = tower.token_embedding(tokens[:, : packing.length].flatten()[packing.places])
    # Unlike plain indexing, an embedding sums its gradient in a fixed order.
    x = x + F.embedding(packing.places % packing.length, tower.positional_embedding)
    for block in blocks:
        x = x + block.ls_1(_attention(block.attn, block.ln_1(x), packing))
        x = x + block.ls_2(block.mlp(block.ln_2(x)))
    x = x[packing.ends] + last.ls_1(_end_attention(last.attn, last.ln_1(x), packing))
    states: Tensor = x + last.ls_2(last.mlp(last.ln_2(x)))
    return states


def _projected(attention: nn.MultiheadAttention | Int8Attention, x: Tensor, part: slice | None = None) -> Tensor:
    """Queries, keys and values side by side, `[tokens, 3 * width]`, or a part of these columns."""
    if isinstance(attention, Int8Attention):
        columns: Tensor = attention.in_proj(x)
        return columns if part is None else columns[:, part]
    bias = attention.in_proj_bias
    if part is None:
        return F.linear(x, attention.in_proj_weight, bias)
    return F.linear(x, attention.in_proj_weight[part], bias[part])


def _attention(attention: nn.MultiheadAttention | Int8Attention, x: Tensor, packing: Packing) -> Tensor:
    """Causal self-attention of packed rows `[tokens, width]`."""
    rows = packing.padded(_projected(attention, x))
    query, key, value = (_heads(part, attention.num_heads) for part in rows.chunk(3, dim=-1))
    found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    projected: Tensor = attention.out_proj(packing.packed(found.transpose(1, 2).flatten(2)))
    return projected


def _end_attention(attention: nn.MultiheadAttention | Int8Attention, x: Tensor, packing: Packing) -> Tensor:
    """Attention of each text's end token, `[texts, width]`, on packed rows `[tokens, width]`."""
    own, others = slice(0, x.shape[1]), slice(x.shape[1], None)
    query = _heads(_projected(attention, x[packing.ends], own)[:, None], attention.num_heads)
    rows = packing.padded(_projected(attention, x, others))
    key, value = (_heads(part, attention.num_heads) for part in rows.chunk(2, dim=-1))
    seen = torch.arange(packing.length, device=x.device) < packing.lengths[:, None]
    found = F.scaled_dot_product_attention(query, key, value, attn_mask=seen[:, None, None])
    projected: Tensor = attention.out_proj(found.transpose(1, 2).flatten(1))
    return projected


def _heads(rows: Tensor, heads: int) -> Tensor:
    """`[texts, length, width]` as `[texts, heads, length, width / heads]`."""
    texts, length, width = rows.shape
    return rows.view(texts, length, heads, width // heads).transpose(1, 2)
