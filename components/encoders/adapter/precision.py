"""Text towers that compute in fewer bits: weights rounded once, in place, to bfloat16 or to 8-bit integers."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from components.core.system.errors import InputError

Precision = Literal["fp32", "bf16", "int8"]

_ZERO = 128
"""The byte that stands for zero in a quantised input, because products of unsigned with signed bytes are fastest."""


def text_parts(model: Any) -> list[nn.Module]:
    """The modules of an image-text model that texts pass through; CLIP's own text tower also holds the image tower."""
    tower = getattr(model, "text", model)
    return [part for name, part in tower.named_children() if name != "visual"]


def round_weights(parts: list[nn.Module]) -> None:
    """Round the weights that autocast rounds in every call to bfloat16; results under autocast stay the same.

    A single text costs as much time for this rounding as for its products.
    """
    for module in (module for part in parts for module in part.modules()):
        names = {nn.Linear: ("weight", "bias"), nn.MultiheadAttention: ("in_proj_weight", "in_proj_bias")}
        for name in (name for kind, own in names.items() if isinstance(module, kind) for name in own):
            if (parameter := getattr(module, name)) is not None:
                parameter.data = parameter.data.bfloat16()


def quantise(parts: list[nn.Module]) -> None:
    """Replace linear layers, and the self-attention of open_clip's blocks, by layers of 8-bit integers."""
    devices = {parameter.device.type for part in parts for parameter in part.parameters()}
    if devices != {"cpu"} or not hasattr(torch.ops.onednn, "qlinear_pointwise"):
        raise InputError("precision 'int8' needs an x86 processor: choose bf16 or fp32, or set device to cpu")
    for part in parts:
        _quantise_below(part)


def _quantise_below(module: nn.Module) -> None:
    from open_clip.transformer import ResidualAttentionBlock

    for name, child in module.named_children():
        if type(child) is nn.Linear:
            setattr(module, name, Int8Linear(child.weight, child.bias))
        elif type(module) is ResidualAttentionBlock and name == "attn" and child.batch_first:
            setattr(module, name, Int8Attention(child))
        elif not isinstance(child, nn.MultiheadAttention):
            _quantise_below(child)


class Int8Linear(nn.Module):
    """`x @ weight.T + bias` with products of 8-bit integers.

    Each output channel of the weights and each row of the input has a scale of its own, as in LLM.int8()
    (2208.07339, section 2.1). So a text's features do not depend on the other texts of its batch.

    Args:
        weight: `[out, in]`, float32.
        bias: `[out]`.
    """

    int8_original_dtype = torch.float32
    """The type of inputs and outputs, which open_clip reads from quantised layers."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        weight = weight.detach()
        # Without VNNI, pairs of products are added in 16 bits, where 8-bit weights overflow.
        has = torch.cpu.get_capabilities()
        steps = 127 if has.get("avx512_vnni") or has.get("avx_vnni") else 63
        self.scales = weight.abs().amax(1).clamp_min(1e-12) / steps
        self.weight = torch.ops.onednn.qlinear_prepack((weight / self.scales[:, None]).round().to(torch.int8), None)
        self.zeros = torch.zeros(len(weight), dtype=torch.int64)
        self.bias = torch.zeros(len(weight)) if bias is None else bias.detach().clone()

    def forward(self, x: Tensor) -> Tensor:
        """`[..., in]` to `[..., out]`, float32."""
        rows = x.reshape(-1, x.shape[-1])
        scales = rows.abs().amax(1, keepdim=True).clamp_min_(1e-12).div_(127)
        # Half a step more, because the conversion to bytes cuts.
        quantised = (rows / scales).add_(_ZERO + 0.5).to(torch.uint8)
        product = torch.ops.onednn.qlinear_pointwise(
            quantised, 1.0, _ZERO, self.weight, self.scales, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return torch.addcmul(self.bias, product, scales).view(*x.shape[:-1], -1)


class Int8Attention(nn.Module):
    """Self-attention with projections of 8-bit integers, which is called as the `nn.MultiheadAttention` it replaces."""

    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.num_heads: int = attention.num_heads
        self.in_proj = Int8Linear(attention.in_proj_weight, attention.in_proj_bias)
        self.out_proj = Int8Linear(attention.out_proj.weight, attention.out_proj.bias)

    def forward(self, x: Tensor, *_: Tensor, attn_mask: Tensor | None = None, **__: object) -> tuple[Tensor, None]:
        """`[batch, length, width]` to the same; `attn_mask` is added to the logits."""
        batch, length, width = x.shape
        rows = self.in_proj(x).view(batch, length, 3, self.num_heads, -1)
        query, key, value = rows.permute(2, 0, 3, 1, 4)
        if attn_mask is not None and attn_mask.ndim == 3:
            attn_mask = attn_mask.view(batch, self.num_heads, length, length)
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)
        projected: Tensor = self.out_proj(found.transpose(1, 2).reshape(batch, length, width))
        return projected, None
