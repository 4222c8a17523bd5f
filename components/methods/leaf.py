"""LEAF: a text must keep the features that it had before training, also with the typing error that moves them most.

The error is searched anew for each text at each step, with the weights as they are then: `tries` places are tried with
a space or by leaving the character out, then `tries` characters at the place that moved the text most. An error must
leave fewer dictionary words than the text has, as the authors' `utils_attacks.py` has it with `--constrain`. They look
words up in NLTK's list, which does not come with a package; here they are the words of three letters or more that
CLIP's vocabulary holds as one token. In their code an underscore is never put between two characters; here it can be.
"""

from __future__ import annotations

import copy
import random
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor

from components.encoders.adapter.text_tower import text_features
from components.encoders.adapter.tokens import Tokens, trimmed, whole_words
from components.methods.contract.features import Features
from components.methods.contract.method import Method
from components.methods.contract.optimisation import NotNegative, Optimisation, Positive
from components.methods.contract.perturb import Perturbed

if TYPE_CHECKING:
    from components.encoders.adapter.encoder import Encoder


@dataclass(frozen=True, kw_only=True)
class Hyper(Optimisation):
    """The values of the published runs; they train on 80,000 captions of DataComp an epoch.

    Attributes:
        tries: places, and characters, that are tried for each text (the paper's rho).
        protocol: `released` tries different places and characters, and leaves a character out where the one that was
            drawn is the same. `own` draws with repetition, changes nothing there, leaves a character out where a space
            would stand beside a space, and allows every error that does not spell another word.
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
"""What may stand at a place; nothing where a character is left out."""
_LETTERS = re.compile("[a-z]+")
_AT_ONCE = 2048
"""Texts that go through the text tower together."""


def misspelt(text: str, place: int, character: str) -> str:
    """`text` with one character changed, at an even place put between two, at an odd one in the place of one.

    Args:
        place: of the `2 * len(text) + 1` that there are.
    """
    start, replaced = divmod(place, 2)
    return text[:start] + character + text[start + replaced :]


def edited(text: str, place: int, character: str) -> str:
    """As `misspelt`; a character that is there already is left out, as in the released code."""
    start, replaced = divmod(place, 2)
    return misspelt(text, place, "" if replaced and text[start] == character else character)


class Search:
    """The typing error that moves each caption of a batch furthest from what the encoder made of it as training began.

    Args:
        encoder: as training begins; its text tower is copied, and its own is the one that the errors are to mislead.
    """

    def __init__(self, encoder: Encoder, hyper: Hyper) -> None:
        self._model, self._tokenizer, self._tries = encoder.model, encoder.tokenizer, hyper.tries
        self._released = hyper.protocol == "released"
        # Only texts are asked of the copy.
        self._original = copy.deepcopy(encoder.model, {id(encoder.model.visual): torch.nn.Identity()})
        self._original.requires_grad_(False)
        self._device = next(encoder.model.parameters()).device

    def __call__(self, tokens: Mapping[str, Tokens]) -> Perturbed:
        """`caption` with its errors, and the features `clean` of the captions without."""
        texts = self._tokenizer.texts(tokens["caption"])
        clean = self._features(self._original, texts)
        # Of the text alone, so that it does not matter which rank has it.
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
        found = self._furthest(texts, second, clean)
        attacked = self._tokenizer([made[number] for made, number in zip(second, found, strict=True)])
        return Perturbed({"caption": attacked}, {"caption": self._tokenizer.lengths(attacked)}, {"clean": clean})

    def _drawn(self, draw: random.Random, among: Sequence[Any]) -> list[Any]:
        """`tries` of them, in protocol `released` different ones as long as there are so many."""
        if self._released and self._tries <= len(among):
            return draw.sample(among, self._tries)
        return draw.choices(among, k=self._tries)

    def _furthest(self, texts: list[str], made: list[list[str]], clean: Tensor) -> list[int]:
        """Which of the texts `made` of each text moved its features most; a refused one becomes the text itself."""
        for text, candidates in zip(texts, made, strict=True):
            candidates[:] = [candidate if self._allowed(text, candidate) else text for candidate in candidates]
        found = self._features(self._model, [candidate for candidates in made for candidate in candidates])
        moved = (found.view(len(texts), -1, clean.shape[1]) - clean[:, None]).square().sum(dim=2)
        return moved.argmax(dim=1).tolist()  # type: ignore[no-any-return]

    def _allowed(self, text: str, changed: str) -> bool:
        if self._released:
            return len(_words(changed)) < len(_words(text))
        return not makes_word(text, changed)

    def _features(self, model: torch.nn.Module, texts: list[str]) -> Tensor:
        """Raw features `[texts, dim]`; each different text is computed once."""
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
    return whole_words() & frozenset(_LETTERS.findall(text.lower()))


def _spaced(text: str, place: int) -> str:
    return edited(text, place, " ")


def _tried(text: str, place: int) -> str:
    # A space between two spaces, or for one, changes nothing: there a character is left out.
    with_space = misspelt(text, place, " ")
    return misspelt(text, place, "") if with_space.split() == text.split() else with_space


def _losses(features: Features, _hyper: Hyper) -> dict[str, Tensor]:
    """The mean squared distance of raw features; LEAF does not normalise them."""
    distance = features.raw("caption").own - features.raw("clean").own
    return {"distance": distance.square().sum(dim=1).mean()}


METHOD = Method(
    name="leaf",
    citation="Abad Rocamora et al., Robustness in Both Domains: CLIP Needs a Robust Text Encoder, NeurIPS 2025",
    hyper=Hyper,
    columns=lambda _hyper: frozenset({"caption"}),
    losses=_losses,
    visits=lambda _hyper: "pairs",
    perturbs=Search,
)
