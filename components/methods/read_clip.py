"""READ-CLIP: a caption's features must let a frozen language model say the caption in other words.

Beside that reconstruction it is NegCLIP's loss without hard images, and a paraphrase is told from the other captions of
the batch. The authors differ in four points that this package's tables and models do not have: their decoder is
T5-v1.1-large, which attends to the text state as if it were an encoded text (here a causal language model has it as
first token); the state is the text tower's before its projection (here its raw features); the decoder says another
human caption of the image (here the paraphrase, since a row has one caption); and there are three hard negatives a
caption (here one). On several ranks, the mean over tokens is that of the global batch; theirs is each rank's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.distributed as dist
import torch.nn.functional as F
from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor, nn

from components.captions.local_model.smollm2 import smollm2_folder
from components.encoders.adapter.language_tower import folder_of, quiet_loading
from components.methods.contract.features import Features
from components.methods.contract.losses import contrast
from components.methods.contract.method import Method
from components.methods.contract.optimisation import Betas, NotNegative, Optimisation, Positive

if TYPE_CHECKING:
    from components.encoders.adapter.encoder import Encoder
    from components.encoders.adapter.tokens import Tokenizer, Tokens


@dataclass(frozen=True, kw_only=True)
class Hyper(Optimisation):
    """The values of the published run on COCO; betas, eps and clipping are the defaults of transformers' trainer.

    Attributes:
        paraphrase: the column that is aligned with the caption, and that the language model is to say.
        reconstruction_weight: of the language model's loss.
        alignment_weight: of the paraphrases' loss.
        language_model: a Hugging Face folder or name of a causal language model; None for SmolLM2-135M, which comes
            with this package.
        reconstruction_mean: over all tokens of the batch, as in the authors' decoder, or over `texts`, each of which
            counts the same.
    """

    lr: Positive = 1e-5
    batch_size: PositiveInt = 256
    epochs: PositiveInt = 5
    weight_decay: NotNegative = 0.1
    warmup_steps: NonNegativeInt = 50
    betas: Betas = (0.9, 0.999)
    eps: Positive = 1e-8
    clip_gradient: Positive | None = 1.0
    image_tower: Literal["frozen", "trained", "random"] = "trained"
    paraphrase: Literal["paraphrase_1", "paraphrase_2", "semclip_paraphrase", "rewrite"] = "paraphrase_1"
    reconstruction_weight: NotNegative = 0.1
    alignment_weight: NotNegative = 0.5
    language_model: str | None = None
    reconstruction_mean: Literal["tokens", "texts"] = "tokens"


class Reconstruction(nn.Module):
    """How far a frozen language model is from saying a text whose features are its first token.

    Only the linear layer in front of the language model learns, and is saved.

    Args:
        dim: of the features.
        tokenizer: of the encoder, whose token ids are told as texts to the language model's own.
        language_model: folder of a causal language model.
        of_tokens: whether the mean is over tokens instead of texts.
    """

    def __init__(self, dim: int, tokenizer: Tokenizer, language_model: Path, *, of_tokens: bool = False) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        super().__init__()
        self._texts, self._of_tokens = tokenizer.texts, of_tokens
        self._words: Any = AutoTokenizer.from_pretrained(language_model, padding_side="right")
        self._words.pad_token = self._words.pad_token or self._words.eos_token
        with quiet_loading():
            model = AutoModelForCausalLM.from_pretrained(language_model, dtype=torch.float32, use_safetensors=True)
        # In a list, so that it is no part of what is trained and saved.
        self._frozen: list[Any] = [model.eval().requires_grad_(False)]
        self.first = nn.Linear(dim, model.config.hidden_size, bias=False)

    def forward(self, features: Tensor, tokens: Tokens, ranks: int = 1) -> Tensor:
        """Mean cross-entropy of the texts' tokens and ends, by tokens or by texts; a scalar.

        Args:
            features: raw, `[batch, dim]`.
            tokens: of the texts to say, in the encoder's ids, `[batch, context]`.
            ranks: how many compute their share of the batch; the mean of what they return is that of the batch.
        """
        ids, counts = self._targets(tokens)
        ids, counts = ids.to(features.device), counts.to(features.device)
        model = self._frozen[0].to(features)
        told = torch.cat([self.first(features)[:, None], model.get_input_embeddings()(ids[:, :-1])], dim=1)
        logits = model(inputs_embeds=told, attention_mask=counts.long(), use_cache=False).logits
        each = F.cross_entropy(logits.transpose(1, 2), ids, reduction="none") * counts
        if not self._of_tokens:
            return (each.sum(dim=1) / counts.sum(dim=1)).mean()
        total = counts.sum()
        if ranks > 1:
            dist.all_reduce(total)
        return each.sum() * ranks / total

    def _targets(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """The language model's ids `[batch, longest]`, each text's with an end token, and which of them count."""
        end = self._words.eos_token_id
        texts = [[*ids, end] for ids in self._words(self._texts(tokens), add_special_tokens=False)["input_ids"]]
        lengths = torch.tensor([len(ids) for ids in texts])
        padded = nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids in texts], True, end)
        return padded, (torch.arange(padded.shape[1]) < lengths[:, None])


def _columns(hyper: Hyper) -> frozenset[str]:
    return frozenset({"image", "caption", "hard_negative", hyper.paraphrase})


def _losses(features: Features, hyper: Hyper) -> dict[str, Tensor]:
    """Images are told from all texts; captions from all images, and paraphrases from all captions."""
    image, caption, negative = (features[column] for column in ("image", "caption", "hard_negative"))
    paraphrase, scale = features[hyper.paraphrase], features.scale
    own = features.raw("caption").own
    said = features.extra(own, features.tokens[hyper.paraphrase], len(caption.all) // len(own))
    return {
        "image_to_text": contrast(image, caption, negative, scale=scale) / 2,
        "text_to_image": contrast(caption, image, scale=scale) / 2,
        "alignment": contrast(paraphrase, caption, scale=scale) * hyper.alignment_weight,
        "reconstruction": said * hyper.reconstruction_weight,
    }


def _extra(encoder: Encoder, hyper: Hyper) -> nn.Module:
    folder = folder_of(hyper.language_model) if hyper.language_model else smollm2_folder()
    of_tokens = hyper.reconstruction_mean == "tokens"
    return Reconstruction(encoder.sidecar.embed_dim, encoder.tokenizer, folder, of_tokens=of_tokens)


METHOD = Method(
    name="read_clip",
    citation=(
        "Kwon et al., Enhancing Compositional Reasoning in CLIP via Reconstruction and Alignment of Text Descriptions "
        "(READ-CLIP), NeurIPS 2025"
    ),
    hyper=Hyper,
    columns=_columns,
    losses=_losses,
    files=lambda hyper: {"language_model": folder_of(hyper.language_model)} if hyper.language_model else {},
    extra=_extra,
)
