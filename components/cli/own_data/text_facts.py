"""Facts about captions that decide what can be learned from them: lengths, repetitions, noise."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from components.core.text.languages import word_count

_NOISE = {
    "file names": re.compile(r"\.(?:jpe?g|png|webp|gif|tiff?)\b|^(?:IMG|DSC|P)_?\d{3,}", re.IGNORECASE),
    "HTML": re.compile(r"</?[a-z][^>]*>|&[a-z]+;", re.IGNORECASE),
    "codes": re.compile(r"\b(?=\w*\d)(?=\w*[A-Z])[A-Z0-9-]{6,}\b"),
    "links": re.compile(r"https?://|www\."),
}
_WORDS_IN_BETWEEN = (5, 95)


@dataclass(frozen=True)
class TextFacts:
    """Facts about captions.

    Attributes:
        words: median, 5th and 95th percentile of the number of words.
        one_word: share of captions of one word.
        shared: share of captions that another picture has too.
        noise: kind of noise -> share of captions that have it, without kinds below one percent.
        example: one of the captions, shortened.
    """

    words: tuple[int, int, int]
    one_word: float
    shared: float
    noise: dict[str, float]
    example: str

    def lines(self, has_items: bool) -> list[str]:
        """The facts in words, one line each; `has_items` if the products of pictures are known."""
        median, low, high = self.words
        found = [f"captions: {median} words (median; 90% have {low} to {high}), such as: {self.example}"]
        if self.one_word >= 0.01:
            found.append(f"captions of one word: {self.one_word:.0%}; they have no paraphrase and are not rewritten")
        if self.shared >= 0.01 and not has_items:
            found.append(
                f"captions that several pictures share: {self.shared:.0%}; for several pictures of one product, name "
                "its column by --item"
            )
        if self.noise:
            kinds = ", ".join(f"{kind} {share:.0%}" for kind, share in self.noise.items())
            found.append(f"noise in captions: {kinds}; the model rewrites it as plain language")
        return found


def text_facts(texts: Mapping[str, int]) -> TextFacts | None:
    """The facts about captions, given with the number of pictures that have each; None without any."""
    if not texts:
        return None
    counts = np.array(list(texts.values()))
    lengths = np.array([word_count(text) for text in texts]).repeat(counts)
    low, high = (int(np.percentile(lengths, share)) for share in _WORDS_IN_BETWEEN)
    pictures = Counter[str]()
    for text, count in texts.items():
        pictures[text.casefold()] += count
    shared = sum(count for count in pictures.values() if count > 1) / counts.sum()
    found = {kind: np.array([bool(pattern.search(text)) for text in texts]) for kind, pattern in _NOISE.items()}
    found["capitals only"] = np.array([text.isupper() and len(text) > 3 for text in texts])
    shares = {kind: float((counts * has).sum() / counts.sum()) for kind, has in found.items()}
    noise = {kind: share for kind, share in shares.items() if share >= 0.01}
    example = textwrap.shorten(next(iter(texts)), 60, placeholder=" ...")
    return TextFacts((int(np.median(lengths)), low, high), float((lengths <= 1).mean()), shared, noise, example)
