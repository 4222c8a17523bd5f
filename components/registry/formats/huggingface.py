"""A Hugging Face folder: `CLIPModel`, its tokenizer and its image processor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import open_clip
import torch
from PIL import Image

from components.encoders.adapter.encoder import Encoder
from components.registry.formats import clip_weights
from components.registry.formats.format import Features, Format

_START, _END = "<|startoftext|>", "<|endoftext|>"


def _write(encoder: Encoder, folder: Path) -> None:
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    byte_pairs = open_clip.SimpleTokenizer(context_length=encoder.sidecar.context_length)
    start, end = byte_pairs.sot_token_id, byte_pairs.eot_token_id
    model = CLIPModel(CLIPConfig(**clip_weights.configuration(encoder, start, end)))
    model.load_state_dict(clip_weights.weights(encoder), strict=True)
    model.save_pretrained(folder)
    clip_tokenizer(byte_pairs, encoder.sidecar.context_length).save_pretrained(folder)
    size = encoder.sidecar.image_size
    CLIPImageProcessor(
        size={"shortest_edge": size},
        crop_size={"height": size, "width": size},
        image_mean=list(open_clip.OPENAI_DATASET_MEAN),
        image_std=list(open_clip.OPENAI_DATASET_STD),
    ).save_pretrained(folder)


def clip_tokenizer(byte_pairs: open_clip.SimpleTokenizer, context_length: int) -> Any:
    """The same byte pairs with the same ids, in transformers' class; only the two special tokens have other names."""
    from transformers import CLIPTokenizer

    renamed = {byte_pairs.sot_token_id: _START, byte_pairs.eot_token_id: _END}
    vocabulary = {renamed.get(number, token): number for token, number in byte_pairs.encoder.items()}
    return CLIPTokenizer(vocab=vocabulary, merges=list(byte_pairs.bpe_ranks), model_max_length=context_length)


@torch.inference_mode()
def _read(folder: Path, texts: Sequence[str], images: Sequence[Image.Image]) -> Features:
    from transformers import CLIPImageProcessor, CLIPModel, CLIPTokenizer

    model = CLIPModel.from_pretrained(folder).eval()
    tokens = CLIPTokenizer.from_pretrained(folder)(list(texts), padding=True, truncation=True, return_tensors="pt")
    pixels = CLIPImageProcessor.from_pretrained(folder)(list(images), return_tensors="pt")
    found = model(**tokens, **pixels)
    return Features(found.text_embeds.numpy(), found.image_embeds.numpy())


FORMAT = Format(
    name="huggingface",
    refuse=clip_weights.refuse,
    write=_write,
    read=_read,
    usage=(
        "from transformers import CLIPImageProcessor, CLIPModel, CLIPTokenizer\n"
        'model = CLIPModel.from_pretrained("{folder}")\n'
        'tokenizer = CLIPTokenizer.from_pretrained("{folder}")\n'
        'processor = CLIPImageProcessor.from_pretrained("{folder}")'
    ),
    notes=(
        "open_clip's tokenizer also straightens curly quotes, decodes HTML entities and repairs broken Unicode before "
        "it looks for byte pairs; this one does not: clean such texts with ftfy and `html.unescape` first. Image "
        "processors of transformers resize by other arithmetic than Pillow.",
    ),
)
