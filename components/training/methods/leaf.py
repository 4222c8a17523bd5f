"""LEAF: a text keeps the features it had before training, even with the typing error that moves them most.

Each step searches the error of each text with the current weights: `tries` places with a space or without the
character, then `tries` characters at the place that moved the text most. An error must leave fewer dictionary words
than the text has, like the authors' `utils_attacks.py` with `--constrain`. They use NLTK's word list, which no package
contains; the words here are those of three letters or more that CLIP's vocabulary holds as one token. Their code never
puts an underscore between two characters; this one can. With one word list 176 of 4,512 verdicts of `--constrain`
differ, all next to digits or underscores.
"""

from __future__ import annotations

import copy
import random
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import NonNegativeInt, PositiveInt

from components.training.methods.contract.losses import Features, Losses
from components.training.methods.contract.method import Method, NotNegative, Optimisation, Perturbed, Positive

if TYPE_CHECKING:
    from torch import Tensor, nn

    from components.encoders.adapter.encoder import Encoder
    from components.encoders.adapter.tokens import Tokens


@dataclass(frozen=True, kw_only=True)
class LeafSettings(Optimisation):
    """The values of the published runs; they train on 80,000 captions of DataComp an epoch.

    Attributes:
        tries: number of places, and of characters, per text (the paper's rho).
        protocol: `released` tries distinct places and characters, and deletes a character that equals the drawn one.
            `own` draws with repetition, leaves such a character unchanged, deletes a character instead of doubling a
            space, and allows every error that does not spell another word.
    """

    lr: Positive = 1e-5
    batch_size: PositiveInt = 128
    epochs: PositiveInt = 30
    weight_decay: NotNegative = 1e-4
    warmup_steps: NonNegativeInt = 1400
    learn_logit_scale: bool = False
    tries: PositiveInt = 50
    protocol: Literal["released", "own"] = "released"


_CHARACTERS = ["", " ", *string.ascii_letters, *string.digits, *string.punctuation]
"""Characters of an error; the empty one deletes."""
_LETTERS = re.compile("[a-z]+")
_AT_ONCE = 2048
"""Texts per pass through the text tower."""


def misspelt(text: str, place: int, character: str) -> str:
    """`text` with a character inserted at an even place or replaced at an odd one; places are 0 to 2 * len(text)."""
    start, replaced = divmod(place, 2)
    return text[:start] + character + text[start + replaced :]


def edited(text: str, place: int, character: str) -> str:
    """Like `misspelt`, but a character that would be replaced by the same one is deleted, as in the released code."""
    start, replaced = divmod(place, 2)
    return misspelt(text, place, "" if replaced and text[start] == character else character)


class Search:
    """Finds the typing error that moves each caption of a batch furthest from its features before training."""

    def __init__(self, encoder: Encoder, hyper: LeafSettings) -> None:
        from torch import nn

        self._model, self._tokenizer, self._tries = encoder.model, encoder.tokenizer, hyper.tries
        self._released = hyper.protocol == "released"
        # The copy only encodes texts.
        self._original = copy.deepcopy(encoder.model, {id(encoder.model.visual): nn.Identity()})
        self._original.requires_grad_(False)
        self._device = next(encoder.model.parameters()).device

    def __call__(self, tokens: Mapping[str, Tokens]) -> Perturbed:
        """`caption` with errors, and the features `clean` of the correct captions."""
        import torch

        texts = self._tokenizer.texts(tokens["caption"])
        clean = self._features(self._original, texts)
        # The draw depends only on the text, so that it is the same on every rank.
        seed = int(torch.randint(2**31, ()))
        draws = [random.Random(f"{seed}-{text}") for text in texts]
        places = [self._drawn(draw, range(2 * len(text) + 1)) for draw, text in zip(draws, texts, strict=True)]
        spaced, changed = (_spaced, edited) if self._released else (_tried, misspelt)
        first = [[spaced(text, place) for place in tried] for text, tried in zip(texts, places, strict=True)]
        chosen = self._furthest(texts, first, clean)
        best = [tried[number] for tried, number in zip(places, chosen, strict=True)]
        second = [
            [changed(text, place, character) for character in self._drawn(draw, _CHARACTERS)]
            for draw, text, place in zip(draws, texts, best, strict=True)
        ]
        worst = self._furthest(texts, second, clean)
        attacked = self._tokenizer([made[number] for made, number in zip(second, worst, strict=True)])
        return Perturbed({"caption": attacked}, {"caption": self._tokenizer.lengths(attacked)}, {"clean": clean})

    def _drawn(self, draw: random.Random, among: Sequence[Any]) -> list[Any]:
        """`tries` elements, distinct in protocol `released` if there are enough."""
        if self._released and self._tries <= len(among):
            return draw.sample(among, self._tries)
        return draw.choices(among, k=self._tries)

    def _furthest(self, texts: list[str], made: list[list[str]], clean: Tensor) -> list[int]:
        """Index of the candidate of each text that moved its features most; forbidden ones become the text itself."""
        for text, candidates in zip(texts, made, strict=True):
            candidates[:] = [candidate if self._allowed(text, candidate) else text for candidate in candidates]
        found = self._features(self._model, [candidate for candidates in made for candidate in candidates])
        moved = (found.view(len(texts), -1, clean.shape[1]) - clean[:, None]).square().sum(dim=2)
        return moved.argmax(dim=1).tolist()  # type: ignore[no-any-return]

    def _allowed(self, text: str, changed: str) -> bool:
        if self._released:
            return len(_words(changed)) < len(_words(text))
        return not makes_word(text, changed)

    def _features(self, model: nn.Module, texts: list[str]) -> Tensor:
        """Raw features `[texts, dim]`; equal texts are computed once."""
        import torch

        from components.encoders.adapter.text_tower import text_features
        from components.encoders.adapter.tokens import trimmed

        once = list(dict.fromkeys(texts))
        tokens = self._tokenizer(once)
        lengths = self._tokenizer.lengths(tokens)
        parts = [slice(start, start + _AT_ONCE) for start in range(0, len(once), _AT_ONCE)]
        found = torch.cat(
            [text_features(model, trimmed(tokens[part], lengths[part]).to(self._device)) for part in parts]
        )
        place = {text: number for number, text in enumerate(once)}
        return found[[place[text] for text in texts]]


def makes_word(text: str, changed: str) -> bool:
    """Whether `changed` has a frequent word that `text` does not have."""
    return not _words(changed) <= _words(text)


def _words(text: str) -> frozenset[str]:
    from components.encoders.adapter.tokens import whole_words

    return whole_words() & frozenset(_LETTERS.findall(text.lower()))


def _spaced(text: str, place: int) -> str:
    return edited(text, place, " ")


def _tried(text: str, place: int) -> str:
    # A space between or for spaces changes nothing: delete a character instead.
    with_space = misspelt(text, place, " ")
    return misspelt(text, place, "") if with_space.split() == text.split() else with_space


class Leaf(Method[LeafSettings]):
    """The mean squared distance of raw features; LEAF does not normalise them."""

    name = "leaf"
    citation = "Abad Rocamora et al., Robustness in Both Domains: CLIP Needs a Robust Text Encoder, NeurIPS 2025"
    settings_class = LeafSettings
    columns = frozenset({"caption"})
    contrasts = False
    epoch_unit = "pairs"

    def losses(self, features: Features) -> Losses:
        distance = features.raw("caption").own - features.raw("clean").own
        return {"distance": distance.square().sum(dim=1).mean()}

    @property
    def augment(self) -> Callable[[Encoder], Search]:
        return lambda encoder: Search(encoder, self.settings)


METHOD = Leaf
