"""Images from sums of text features by Stable Diffusion XL, with an encoder's text tower in place of one of its own.

This requires the extra `diffusion` (diffusers), a pipeline of 7 GB and, for more than a few images, a GPU; diffusers
and the pipeline are loaded with the first image.

PC-CLIP replaces different towers in two places. Section 4.5, whose table 5 is scored, uses a ViT-G/14, "as this is the
text embedding used in Stable Diffusion XL": that is the pipeline's second tower, and the default. Appendix D.2, on
example pictures, uses PC-CLIP "as our first text encoder": OpenAI's ViT-L/14.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from open_clip.transformer import text_global_pool
from PIL import Image
from torch import Tensor, nn

from components.benchmarks.encoding.context import EncoderUnderTest
from components.core.discovery import choose
from components.core.errors import InputError
from components.core.files import atomic_file, content_hash
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.tokens import Tokens


@torch.inference_mode()
def tower_states(model: Any, tokens: npt.NDArray[np.integer[Any]], name: str) -> tuple[Tensor, Tensor]:
    """Input states of the last block `[texts, length, width]`, and raw projected features `[texts, dim]`.

    Stable Diffusion XL uses the last but one hidden states of its text towers, without a final norm.

    Args:
        model: an `open_clip.CLIP`, or a model whose causal text tower is `model.text`.
        tokens: ids of the full context `[texts, length]`.
        name: of the encoder, for errors.

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


CACHE = Path("state/generated_images")
TOWERS = {"second": "ViT-bigG-14", "first": "ViT-L-14"}
"""Replaceable text tower of Stable Diffusion XL -> its architecture; the first is the default."""
_STEPS, _GUIDANCE = 50, 5.0
"""The pipeline's own defaults."""


@dataclass
class StableDiffusion:
    """Stable Diffusion XL.

    Attributes:
        source: a folder or Hugging Face name of its pipeline.
        tower: the text tower that the encoder replaces, a key of `TOWERS`.
        steps: of denoising.
    """

    source: str
    tower: str = "second"
    steps: int = _STEPS
    _pipeline: Any = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """Source and settings of the pipeline."""
        return f"{self.source} {self.tower} tower steps {self.steps} guidance {_GUIDANCE}"

    def paint(self, under_test: EncoderUnderTest, texts: tuple[str, ...], seed: int) -> Image.Image:
        """An image of the sum of the texts' token states and of their pooled features.

        Raises:
            InputError: diffusers or the pipeline is missing, or the encoder's text tower does not fit into it.
        """
        pipeline = self._loaded()
        with torch.inference_mode():
            parts = [_states(pipeline, under_test, text, self.tower) for text in texts]
            tokens, pooled = (torch.stack(part).sum(dim=0) for part in zip(*parts, strict=True))
            made = pipeline(
                prompt_embeds=tokens.to(pipeline.device, pipeline.dtype),
                pooled_prompt_embeds=pooled.to(pipeline.device, pipeline.dtype),
                num_inference_steps=self.steps,
                guidance_scale=_GUIDANCE,
                generator=torch.Generator().manual_seed(seed),
            )
        image: Image.Image = made.images[0]
        return image

    def _loaded(self) -> Any:
        if self._pipeline is None:
            try:
                diffusers: Any = importlib.import_module("diffusers")
            except ImportError:
                raise InputError(
                    "images are generated by diffusers: install it with `pip install cliptune[diffusion]`"
                ) from None
            half = torch.cuda.is_available()
            try:
                loaded = diffusers.StableDiffusionXLPipeline.from_pretrained(
                    self.source, dtype=torch.float16 if half else torch.float32
                )
            except (OSError, ValueError) as error:
                raise InputError(
                    f"--option diffusion={self.source} is not a pipeline ({' '.join(str(error).split())[:120]}): give "
                    "the folder of Stable Diffusion XL"
                ) from None
            self._pipeline = loaded.to("cuda") if half else loaded
        return self._pipeline


def pipeline_of(options: Mapping[str, Any]) -> StableDiffusion:
    """The pipeline of the options `diffusion` and `diffusion_tower`.

    Raises:
        InputError: the option `diffusion` is missing, because images are expensive; or the tower is unknown.
    """
    chosen = options.get("diffusion")
    if not chosen:
        raise InputError(
            "this benchmark generates 800 images: install the extra `diffusion` and give "
            "--option diffusion=<folder or name of Stable Diffusion XL>"
        )
    tower = choose(list(TOWERS), str(options.get("diffusion_tower", "second")), "--option diffusion_tower: tower")
    return StableDiffusion(chosen, tower) if isinstance(chosen, str) else chosen  # type: ignore[no-any-return]


def painted(
    pipeline: StableDiffusion, under_test: EncoderUnderTest, texts: tuple[str, ...], seed: int, cache: Path = CACHE
) -> Path:
    """The file of the image, a PNG, which is generated unless it exists."""
    path = cache / f"{content_hash(pipeline.name, under_test.sha256, *texts, str(seed))}.png"
    if not path.exists():
        image = pipeline.paint(under_test, texts, seed)
        with atomic_file(path) as temporary:
            image.save(temporary, "PNG")
    return path


def _states(pipeline: Any, under_test: EncoderUnderTest, text: str, tower: str) -> tuple[Tensor, Tensor]:
    """Token states `[1, length, widths of both towers]` and pooled features `[1, dim]` of one text.

    The pipeline uses the states of both towers, and pooled features of the second only.
    """
    if tower == "second":
        first, _ = _own_states(pipeline, text, pipeline.tokenizer, pipeline.text_encoder)
        second, pooled = _encoder_states(under_test, text, pipeline.tokenizer_2, pipeline.text_encoder_2.config, tower)
    else:
        first, _ = _encoder_states(under_test, text, pipeline.tokenizer, pipeline.text_encoder.config, tower)
        second, pooled = _own_states(pipeline, text, pipeline.tokenizer_2, pipeline.text_encoder_2)
    return torch.cat([first.float().cpu(), second.float().cpu()], dim=-1), pooled.float().cpu()


def _own_states(pipeline: Any, text: str, tokenizer: Any, tower: Any) -> tuple[Tensor, Tensor]:
    """Outputs of one of the pipeline's text towers: states before its last block, and its first output."""
    length = tokenizer.model_max_length
    ids = tokenizer(text, padding="max_length", max_length=length, truncation=True, return_tensors="pt").input_ids
    outputs = tower(ids.to(pipeline.device), output_hidden_states=True)
    return outputs.hidden_states[-2], outputs[0]


def _encoder_states(
    under_test: EncoderUnderTest, text: str, tokenizer: Any, config: Any, tower: str
) -> tuple[Tensor, Tensor]:
    """Outputs of the encoder's text tower in place of one with `config`; texts are padded as by `tokenizer`.

    Raises:
        InputError: it does not fit.
    """
    encoder, wanted = under_test.encoder, (tokenizer.model_max_length, int(config.hidden_size))
    if not isinstance(encoder, Encoder):
        raise InputError(f"encoder '{under_test.name}' has no text tower of open_clip: choose a {TOWERS[tower]}")
    tokens = encoder.tokenizer([text])
    padded = _padded(tokens, encoder.tokenizer.lengths(tokens), tokenizer.pad_token_id)
    with encoder.mixed():
        states, pooled = (part.float() for part in tower_states(encoder.model, padded, under_test.name))
    shape, dim = tuple(states.shape[1:]), pooled.shape[-1]
    if shape != wanted or (tower == "second" and dim != config.projection_dim):
        raise InputError(
            f"encoder '{under_test.name}' has a text tower of {shape[0]} tokens, width {shape[1]} and dimension "
            f"{dim}; the {tower} of Stable Diffusion XL has {wanted[0]}, {wanted[1]} and {config.projection_dim}: "
            f"choose a {TOWERS[tower]}"
        )
    return states, pooled


def _padded(tokens: Tokens, lengths: Any, pad: int) -> Tokens:
    """`tokens` with `pad` after each row's end, `[texts, length]`; the pipeline also uses the states of padding."""
    return np.where(np.arange(tokens.shape[1]) < np.asarray(lengths)[:, None], tokens, pad).astype(tokens.dtype)
