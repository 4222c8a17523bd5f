"""Compares an encoder's features with those that open_clip computes itself: its tokenizer, transform and towers."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from components.core.compute.devices import fetched
from components.core.pictures.rgb import open_picture
from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.model_configs import HUB, LOCAL, described
from components.encoders.adapter.sidecar import Parity

TOLERANCE = 1e-4
"""Largest allowed difference of a number of a unit feature."""
_TEXTS, _SIDES = 100, ((300, 200), (200, 300), (7, 5), (640, 427), (64, 64))
_MODES = ("RGB", "L", "RGBA", "P")
_AWKWARD = (
    "a child on a couch",
    "Two cats, one asleep -- the other isn't.",
    "IMG_0042.jpg 3 crème brûlées @ the café",
    "a photo of " + "a very, very long table " * 40,
)
"""Texts that libraries tokenize differently: punctuation, letters beyond ASCII, and more tokens than fit."""


@dataclass(frozen=True)
class Reference:
    """open_clip's own model with its weights, transform of pictures, and the name by which it finds the tokenizer."""

    model: Any
    prepare: Callable[[Image.Image], torch.Tensor]
    name: str

    @staticmethod
    def of(name: str, tokenizer: str) -> Reference:
        """What open_clip loads under a name with a prefix; raises as open_clip."""
        from open_clip import create_model_and_transforms

        text = described(name)[0]["text_cfg"]
        # open_clip does not look for a language model's configuration in the folder.
        own = {"text_cfg": text | {"hf_model_pretrained": False}} if "hf_model_name" in text else {}
        model, _, prepare = create_model_and_transforms(name, precision="fp32", **own)
        return Reference(model.eval(), prepare, tokenizer)

    def tokenized(self, texts: Sequence[str], encoder: Encoder) -> torch.Tensor:
        """Token ids `[texts, context]` by open_clip's tokenizer of this name, or by the encoder's if it has none."""
        import open_clip

        if self.name.startswith((HUB, LOCAL)) or self.name in open_clip.list_models():
            tokens: torch.Tensor = open_clip.get_tokenizer(self.name)(list(texts))
            return tokens
        return torch.from_numpy(encoder.tokenizer(texts)).long()


def measured_parity(encoder: Encoder, reference: Reference, device: str = "cpu") -> Parity:
    """The largest differences of unit features of 100 texts and 20 pictures of several shapes and modes."""
    texts, pictures = sample_texts(_TEXTS), sample_pictures()
    tokens = reference.tokenized(texts, encoder)
    pixels = torch.stack([_prepared(reference, raw) for raw in pictures])
    encoder.to(device)
    reference.model.to(device)
    theirs = [
        _in_parts(reference.model.encode_text, tokens.to(device)),
        _in_parts(reference.model.encode_image, pixels.to(device)),
    ]
    ours = [encoder.embed_texts(texts), encoder.embed_images(pictures)]
    encoder.to("cpu")
    differences = [float(np.abs(one - other).max()) for one, other in zip(ours, theirs, strict=True)]
    parity = Parity(texts=differences[0], images=differences[1])
    if not max(differences) <= TOLERANCE:
        raise InputError(
            f"features of '{reference.name}' differ from open_clip's by {parity.texts:.1e} for texts and "
            f"{parity.images:.1e} for pictures, more than {TOLERANCE:.0e}: nothing was written; report this model"
        )
    return parity


def _prepared(reference: Reference, raw: bytes) -> torch.Tensor:
    with open_picture(raw) as image:
        return reference.prepare(image)


@torch.inference_mode()
def _in_parts(encode: Callable[[torch.Tensor], torch.Tensor], rows: torch.Tensor) -> np.ndarray[Any, Any]:
    parts = [F.normalize(encode(part).float(), dim=-1) for part in torch.split(rows, 32)]
    return fetched(torch.cat(parts))


def sample_texts(count: int) -> list[str]:
    """`count` texts for a comparison: four that libraries tokenize differently, the others of random words."""
    random = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    texts = list(_AWKWARD)
    while len(texts) < count:
        words = ["".join(random.choice(letters, random.integers(1, 10))) for _ in range(random.integers(1, 13))]
        texts.append(" ".join(words))
    return texts[:count]


def sample_pictures() -> list[bytes]:
    """20 encoded pictures: wide, high, tiny and square, in colour, grey, transparent and with a palette."""
    random = np.random.default_rng(0)
    pictures = []
    for width, height in _SIDES:
        coarse = random.integers(0, 256, (4, 5, 4), dtype=np.uint8)
        image = Image.fromarray(coarse, "RGBA").resize((width, height), Image.Resampling.BICUBIC)
        for mode in _MODES:
            buffer = io.BytesIO()
            (image if mode == "RGBA" else image.convert("RGB").convert(mode)).save(buffer, "PNG")
            pictures.append(buffer.getvalue())
    return pictures
