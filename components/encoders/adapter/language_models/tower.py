"""A text tower made of a pretrained language model, and the four ways to adapt it.

Cheng et al., Adapting Dual-encoder Vision-language Models for Paraphrased Retrieval, section 4.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from components.encoders.adapter.language_models.layers import layers

Strategy = Literal["finetuned", "frozen", "bottleneck", "alignment"]
"""What trains besides the projection: all of the language model, nothing, adapters in it, or layers on top of it."""

REDUCTION = 2
"""How many times narrower than the language model its adapters are."""


def trained(strategy: Strategy, alignment_layers: int) -> tuple[str, ...]:
    """Patterns of the names of the parameters that a strategy trains in a `LanguageClip`."""
    inside = {
        "finetuned": [r"^text\.language\."],
        "frozen": [],
        "bottleneck": [r"^text\.language\..*\.adapter\."],
        "alignment": [r"^text\.language\..*\.alignment_\d+\."] if alignment_layers else [],
    }
    return (*inside[strategy], r"^text\.projection\.")


class LanguageTower(nn.Module):
    """A language model, the mean over each text's own tokens, and a projection of two layers.

    Layers that a strategy keeps frozen store no activations: their weights need no gradient and nothing below them
    does, so autograd records nothing.

    Args:
        language: the model, with its alignment layers as its topmost where the strategy has any.
        embed_dim: of the features.
        strategy: which adaptation.
        alignment_layers: how many of the model's layers were added to it; zero for the other strategies.
        adapter_norm: whether the adapters of `bottleneck` begin with a layer norm.
    """

    def __init__(
        self, language: Any, embed_dim: int, strategy: Strategy, alignment_layers: int = 0, adapter_norm: bool = False
    ) -> None:
        super().__init__()
        self.language = language
        width = language.config.hidden_size
        self.pad_id: int = language.config.pad_token_id
        self.projection = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, embed_dim))
        if strategy == "bottleneck":
            _insert_adapters(layers(language), width, adapter_norm)
        if strategy == "alignment":
            _name_alignment(layers(language), alignment_layers)

    def forward(self, tokens: Tensor) -> Tensor:
        """Raw features `[batch, dim]` of token ids `[batch, length]`, padded on the right."""
        own = tokens != self.pad_id
        states = self.language(input_ids=tokens, attention_mask=own.long()).last_hidden_state
        weights = own.unsqueeze(-1).to(states.dtype)
        mean = (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
        features: Tensor = self.projection(mean)
        return features


class Adapter(nn.Module):
    """A bottleneck after a layer, added to what it gets; it starts as the identity.

    The paper cites two designs: Houlsby et al., Parameter-Efficient Transfer Learning for NLP, section 2.1, without a
    layer norm, and Bapna and Firat, Simple, Scalable Adaptation for Neural Machine Translation, section 2.2, with one.
    """

    def __init__(self, width: int, norm: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()
        self.down = nn.Linear(width, width // REDUCTION)
        self.up = nn.Linear(width // REDUCTION, width)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, states: Tensor) -> Tensor:
        change: Tensor = self.up(F.relu(self.down(self.norm(states))))
        return states + change


class AdaptedLayer(nn.Module):
    """A layer of a language model with an adapter behind it."""

    def __init__(self, layer: nn.Module, width: int, norm: bool) -> None:
        super().__init__()
        self.layer = layer
        self.adapter = Adapter(width, norm)

    def forward(self, states: Tensor, *others: Any, **named: Any) -> Any:
        """What the layer gives, its states adapted; some layers give a tuple with the states first."""
        given = self.layer(states, *others, **named)
        return self.adapter(given) if isinstance(given, Tensor) else (self.adapter(given[0]), *given[1:])


class LanguageClip(nn.Module):
    """An image tower of open_clip beside a `LanguageTower`, with CLIP's logit scale."""

    def __init__(self, visual: nn.Module, text: LanguageTower) -> None:
        super().__init__()
        self.visual = visual
        self.text = text
        self.logit_scale = nn.Parameter(torch.tensor(1 / 0.07).log())

    def encode_image(self, pixels: Tensor) -> Tensor:
        """Raw image features `[batch, dim]` of normalised pixels `[batch, 3, size, size]`."""
        features: Tensor = self.visual(pixels)
        return features


def _insert_adapters(stack: nn.ModuleList, width: int, norm: bool) -> None:
    for place, layer in enumerate(stack):
        stack[place] = AdaptedLayer(layer, width, norm)


def _name_alignment(stack: nn.ModuleList, count: int) -> None:
    """Name the topmost `count` layers apart from the pretrained ones, so that a pattern can pick them."""
    own = len(stack) - count
    added = list(stack[own:])
    del stack[own:]
    for number, layer in enumerate(added):
        stack.add_module(f"alignment_{number}", layer)
