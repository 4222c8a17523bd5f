"""READ-CLIP: a frozen language model must be able to generate a paraphrase from a caption's features.

The other terms are NegCLIP's loss without hard images, and a contrast of each paraphrase with the captions of the
batch. The authors differ in four points that the tables and models of this package do not have. Their decoder is
T5-v1.1-large, which attends to the text state like to an encoded text; here a causal language model reads it as its
first token. Their state is the text tower's before its projection; here the raw features. Their target is another human
caption of the image; here the paraphrase, since a row has one caption. They have three hard negatives of a caption,
here one. On several ranks, the mean over tokens is that of the global batch; theirs is computed per rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import NonNegativeInt, PositiveInt

from components.encoders.language_models.weights import check_weight_index
from components.training.methods.contract.losses import Features, Losses, contrast, hard_clip_loss
from components.training.methods.contract.method import Betas, ImageTower, Method, NotNegative, Optimisation, Positive

if TYPE_CHECKING:
    from torch import Tensor, nn

    from components.encoders.adapter.encoder import Encoder
    from components.encoders.adapter.tokens import Tokenizer, Tokens


@dataclass(frozen=True, kw_only=True)
class ReadClipSettings(Optimisation):
    """The values of the published run on COCO; betas, eps and clipping are the defaults of transformers' trainer.

    Attributes:
        paraphrase: the column that is aligned with the caption, and that the language model generates.
        language_model: a Hugging Face folder or name of a causal language model; None for the SmolLM2-135M of
            this package.
        reconstruction_mean: over all `tokens` of the batch, as in the authors' decoder, or over its `texts`.
    """

    lr: Positive = 1e-5
    batch_size: PositiveInt = 256
    epochs: PositiveInt = 5
    weight_decay: NotNegative = 0.1
    warmup_steps: NonNegativeInt = 50
    betas: Betas = (0.9, 0.999)
    eps: Positive = 1e-8
    clip_gradient: Positive | None = 1.0
    image_tower: ImageTower = "trained"
    paraphrase: Literal["paraphrase_1", "paraphrase_2", "semclip_paraphrase", "rewrite"] = "paraphrase_1"
    reconstruction_weight: NotNegative = 0.1
    alignment_weight: NotNegative = 0.5
    language_model: str | None = None
    reconstruction_mean: Literal["tokens", "texts"] = "tokens"


class FrozenDecoder:
    """A frozen language model whose first token is a text's features.

    It is not an `nn.Module`, so that an encoder neither trains nor saves it.

    Args:
        tokenizer: of the encoder; its token ids become texts for the language model's own tokenizer.
        of_tokens: whether losses are means over tokens instead of texts.
    """

    def __init__(self, tokenizer: Tokenizer, language_model: Path, *, of_tokens: bool) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        from components.encoders.adapter.language_tower import quiet_loading

        check_weight_index(language_model)
        self._texts, self._of_tokens = tokenizer.texts, of_tokens
        self._tokenizer: Any = AutoTokenizer.from_pretrained(language_model, padding_side="right")
        self._tokenizer.pad_token = self._tokenizer.pad_token or self._tokenizer.eos_token
        with quiet_loading():
            model = AutoModelForCausalLM.from_pretrained(language_model, dtype=torch.float32, use_safetensors=True)
        self.model: Any = model.eval().requires_grad_(False)

    def loss(self, first: Tensor, tokens: Tokens, ranks: int = 1) -> Tensor:
        """Mean cross-entropy of the texts' tokens and end tokens; a scalar whose mean over `ranks` is the batch's.

        Args:
            first: embeddings of the first tokens, `[batch, width]`.
            tokens: of the target texts, in the encoder's ids, `[batch, context]`.
        """
        import torch
        import torch.distributed as dist
        import torch.nn.functional as F

        ids, counts = self.targets(tokens)
        ids, counts = ids.to(first.device), counts.to(first.device)
        model = self.model.to(first)
        inputs = torch.cat([first[:, None], model.get_input_embeddings()(ids[:, :-1])], dim=1)
        logits = model(inputs_embeds=inputs, attention_mask=counts.long(), use_cache=False).logits
        each = F.cross_entropy(logits.transpose(1, 2), ids, reduction="none") * counts
        if not self._of_tokens:
            return (each.sum(dim=1) / counts.sum(dim=1)).mean()
        total = counts.sum()
        if ranks > 1:
            dist.all_reduce(total)
        return each.sum() * ranks / total

    def targets(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """The language model's ids `[batch, longest]`, an end token after each text, and a mask of those that count."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        end = self._tokenizer.eos_token_id
        texts = [[*ids, end] for ids in self._tokenizer(self._texts(tokens), add_special_tokens=False)["input_ids"]]
        lengths = torch.tensor([len(ids) for ids in texts])
        padded = pad_sequence([torch.tensor(ids) for ids in texts], True, end)
        return padded, (torch.arange(padded.shape[1]) < lengths[:, None])


class ReadClip(Method[ReadClipSettings]):
    """NegCLIP's two terms, a contrast of paraphrases with captions, and the reconstruction of a paraphrase."""

    name = "read_clip"
    citation = (
        "Kwon et al., Enhancing Compositional Reasoning in CLIP via Reconstruction and Alignment of Text Descriptions "
        "(READ-CLIP), NeurIPS 2025"
    )
    settings_class = ReadClipSettings

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({"image", "caption", "hard_negative", self.settings.paraphrase})

    def losses(self, features: Features) -> Losses:
        caption, paraphrase, settings = features["caption"], features[self.settings.paraphrase], self.settings
        own, tokens = features.raw("caption").own, features.tokens[settings.paraphrase]
        reconstruction = reconstruct(features.extra, own, tokens, len(caption.all) // len(own))
        return hard_clip_loss(features, "hard_negative") | {
            "alignment": contrast(paraphrase, caption, scale=features.text_scale) * settings.alignment_weight,
            "reconstruction": reconstruction * settings.reconstruction_weight,
        }

    def files(self) -> dict[str, Path]:
        from components.encoders.adapter.language_tower import folder_of

        return {"language_model": folder_of(self.settings.language_model)} if self.settings.language_model else {}

    def extra(self, encoder: Encoder) -> nn.Module:
        from components.encoders.language_models.language_model import smollm2_folder

        folder = self.files().get("language_model") or smollm2_folder()
        of_tokens = self.settings.reconstruction_mean == "tokens"
        return reconstruction(encoder.sidecar.embed_dim, encoder.tokenizer, folder, of_tokens=of_tokens)


def reconstruct(extra: Any, features: Tensor, tokens: Tokens, ranks: int = 1) -> Tensor:
    """The language model's loss of `tokens`, given raw `features` `[batch, dim]` through a linear layer; a scalar."""
    loss: Tensor = extra.decoder.loss(extra.first(features), tokens, ranks)
    return loss


def reconstruction(dim: int, tokenizer: Tokenizer, language_model: Path, *, of_tokens: bool = False) -> nn.Module:
    """A `FrozenDecoder` as `decoder` and a trained linear layer `first` from `dim` to its width."""
    from torch import nn

    extra: Any = nn.Module()
    extra.decoder = FrozenDecoder(tokenizer, language_model, of_tokens=of_tokens)
    extra.first = nn.Linear(dim, extra.decoder.model.config.hidden_size, bias=False)
    return extra  # type: ignore[no-any-return]


METHOD = ReadClip
