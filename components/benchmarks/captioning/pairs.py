"""Pairs of pictures with the sentences that say how the second differs; sentences as words, and words as numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from components.benchmarks.encoding.pictures import Picture
from components.core.metrics import Indices


@dataclass(frozen=True)
class PicturePair:
    """Two pictures and what people, or a generator that knows it, say of their difference.

    Attributes:
        before: the first picture.
        after: the second.
        sentences: one and more about what is new, gone or other in `after`.
    """

    before: Picture
    after: Picture
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class PairSets:
    """The splits of a data set.

    Attributes:
        train: what the captioner learns from.
        val: what says when it has learned enough.
        test: what it is scored on.
    """

    train: Sequence[PicturePair]
    val: Sequence[PicturePair]
    test: Sequence[PicturePair]


MAX_WORDS = 32
"""Words of a sentence that are learned and written at most (CLIP4IDC's `max_words`)."""
PAD, EDGE = 0, 1
"""Numbers of no word: what fills a row up, and what stands before the first word and behind the last."""
_ENDINGS = re.compile(r"(?<=\w)(n't|'(?:s|re|ve|ll|d|m))\b")
_WORD = re.compile(r"n't\b|'(?:s|re|ve|ll|d|m)\b|\w+(?:[-.,]\w+)*")


def split_words(sentence: str) -> list[str]:
    """Words in lower case without punctuation, "isn't" as "is" and "n't".

    CLIP4IDC's evaluation has the Penn Treebank's rules by Stanford's Java program, which it then strips of punctuation;
    this gives the same words for plain English sentences and needs no Java.

    >>> split_words("The two people aren't in the man's t-shirt .")
    ['the', 'two', 'people', 'are', "n't", 'in', 'the', 'man', "'s", 't-shirt']
    """
    plain = sentence.lower().replace("\u2019", "'").replace("cannot", "can not")
    return _WORD.findall(_ENDINGS.sub(r" \1", plain))


@dataclass(frozen=True)
class Vocabulary:
    """The words that a captioner can write, in alphabetical order.

    Attributes:
        words: each once; the number of the first is 2.
    """

    words: tuple[str, ...]

    @staticmethod
    def of(sentences: Iterable[str]) -> Vocabulary:
        """All words of `sentences`."""
        return Vocabulary(tuple(sorted({word for sentence in sentences for word in split_words(sentence)})))

    def __len__(self) -> int:
        """Numbers that there are."""
        return len(self.words) + 2

    def numbers(self, sentences: Sequence[str]) -> Indices:
        """Rows `[sentences, 1 + longest]` of word numbers, each closed by `EDGE`; unknown words are left out."""
        known = {word: number for number, word in enumerate(self.words, start=2)}
        rows = [[*[known[word] for word in split_words(one) if word in known][:MAX_WORDS], EDGE] for one in sentences]
        found = np.full((len(rows), max(map(len, rows), default=1)), PAD, dtype=np.int64)
        for row, numbers in enumerate(rows):
            found[row, : len(numbers)] = numbers
        return found

    def sentence(self, numbers: Iterable[int]) -> str:
        """The words up to the first number of no word, with spaces between."""
        words: list[str] = []
        for number in numbers:
            if number in (PAD, EDGE):
                break
            words.append(self.words[number - 2])
        return " ".join(words)
