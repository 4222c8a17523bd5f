"""Images from sums of text features by Stable Diffusion XL, with an encoder's text tower in place of one of its own.

This requires the extra `diffusion` (diffusers), a pipeline of 7 GB and, for more than a few images, a GPU. PC-CLIP
replaces different towers in two places. Section 4.5, whose table 5 is scored, uses a ViT-G/14, "as this is the text
embedding used in Stable Diffusion XL": that is the pipeline's second tower, and the default. Appendix D.2, on example
pictures, uses PC-CLIP "as our first text encoder": OpenAI's ViT-L/14.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.under_test import EncoderUnderTest

TOWERS = {"second": "ViT-bigG-14", "first": "ViT-L-14"}
"""Replaceable text tower of Stable Diffusion XL -> its architecture; the first is the default."""
GUIDANCE = 5.0
"""The pipeline's own default, as are 50 steps."""


@dataclass
class StableDiffusion:
    """Stable Diffusion XL in a folder or of a Hugging Face name; the encoder replaces `tower`, a key of `TOWERS`."""

    source: str
    tower: str = "second"
    steps: int = 50

    @property
    def name(self) -> str:
        """Source and settings of the pipeline."""
        return f"{self.source} {self.tower} tower steps {self.steps} guidance {GUIDANCE}"

    @torch.inference_mode()
    def paint(self, under_test: EncoderUnderTest, texts: tuple[str, ...], seed: int) -> Image.Image:
        """An image of the sum of the texts' token states and of their pooled features."""
        parts = zip(*[self._states(under_test, text) for text in texts], strict=True)
        device, dtype = self.pipeline.device, self.pipeline.dtype
        tokens, pooled = (torch.stack(part).sum(dim=0).to(device, dtype) for part in parts)
        made = self.pipeline(
            prompt_embeds=tokens,
            pooled_prompt_embeds=pooled,
            num_inference_steps=self.steps,
            guidance_scale=GUIDANCE,
            generator=torch.Generator().manual_seed(seed),
        )
        image: Image.Image = made.images[0]
        return image

    @cached_property
    def pipeline(self) -> Any:
        """diffusers' pipeline, without pickled weights."""
        diffusers: Any = importlib.import_module("diffusers")
        gpu = torch.cuda.is_available()
        try:
            loaded = diffusers.StableDiffusionXLPipeline.from_pretrained(
                self.source, torch_dtype=torch.float16 if gpu else torch.float32, use_safetensors=True
            )
        except Exception as error:  # Whatever a damaged or foreign folder makes diffusers raise.
            raise InputError(
                f"--benchmark-option diffusion={self.source} is not a pipeline of safetensors files "
                f"({' '.join(str(error).split())[:120]}): give the folder of Stable Diffusion XL"
            ) from None
        return loaded.to("cuda") if gpu else loaded

    def _states(self, under_test: EncoderUnderTest, text: str) -> tuple[Tensor, Tensor]:
        """Token states `[1, length, widths of both towers]` and pooled features `[1, dim]` of one text.

        The pipeline uses the states before the last block of both towers, and pooled features of the second only.
        """
        found = []
        for name, suffix in (("first", ""), ("second", "_2")):
            tokenizer, tower = (getattr(self.pipeline, f"{part}{suffix}") for part in ("tokenizer", "text_encoder"))
            if name == self.tower:
                found.append(_of_encoder(under_test, text, tokenizer, tower.config, name))
                continue
            length = tokenizer.model_max_length
            ids = tokenizer(text, padding="max_length", max_length=length, truncation=True, return_tensors="pt")
            outputs = tower(ids.input_ids.to(self.pipeline.device), output_hidden_states=True)
            found.append((outputs.hidden_states[-2], outputs[0]))
        return torch.cat([states.float().cpu() for states, _ in found], dim=-1), found[1][1].float().cpu()


def _of_encoder(
    under_test: EncoderUnderTest, text: str, tokenizer: Any, config: Any, name: str
) -> tuple[Tensor, Tensor]:
    """The same of the encoder's text tower in place of one with `config`; texts are padded as by `tokenizer`."""
    encoder, model = under_test.encoder, getattr(under_test.encoder, "model", None)
    blocks = getattr(getattr(getattr(model, "text", model), "transformer", None), "resblocks", None)
    if blocks is None or not isinstance(encoder, Encoder):
        raise InputError(f"encoder '{under_test.name}' has no text tower of open_clip: choose a {TOWERS[name]}")
    tokens = encoder.tokenizer([text])
    # The pipeline also uses the states of padding.
    ends = np.arange(tokens.shape[1]) < encoder.tokenizer.lengths(tokens)[:, None]
    padded = torch.from_numpy(np.where(ends, tokens, tokenizer.pad_token_id)).long().to(encoder.device)
    before: list[Tensor] = []
    hook = blocks[-1].register_forward_pre_hook(lambda _, given: before.append(given[0]))
    with encoder.mixed():
        pooled = encoder.model.encode_text(padded)
    hook.remove()
    found = (*before[0].shape[1:], pooled.shape[-1])
    # Of the first tower no pooled features are used.
    wanted = (tokenizer.model_max_length, config.hidden_size, config.projection_dim)
    if found != wanted if name == "second" else found[:2] != wanted[:2]:
        raise InputError(
            f"encoder '{under_test.name}' has a text tower of {found[0]} tokens, width {found[1]} and dimension "
            f"{found[2]}; the {name} of Stable Diffusion XL has {wanted[0]}, {wanted[1]} and {wanted[2]}: "
            f"choose a {TOWERS[name]}"
        )
    return before[0], pooled
