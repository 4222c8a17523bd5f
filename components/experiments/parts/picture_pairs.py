"""Pairs of pictures with sentences about their difference; words of sentences, and numbers of words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from components.core.metrics import Indices
from components.test_sets.pictures import LazyPicture


@dataclass(frozen=True)
class PicturePair:
    """Two pictures and sentences about their difference, by annotators or a generator.

    Attributes:
        before: the first picture.
        after: the second.
        sentences: one or more about new, missing or changed things in `after`.
    """

    before: LazyPicture
    after: LazyPicture
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class PairSets:
    """The splits of a data set.

    Attributes:
        train: for training the captioner.
        val: for choosing its best epoch.
        test: for scoring it.
    """

    train: Sequence[PicturePair]
    val: Sequence[PicturePair]
    test: Sequence[PicturePair]


MAX_WORDS = 32
"""Maximum number of words of a sentence (CLIP4IDC's `max_words`)."""
PAD, EDGE = 0, 1
"""Numbers that are not words: padding, and the mark before the first word and after the last."""
_ENDINGS = re.compile(r"(?<=\w)(n't|'(?:s|re|ve|ll|d|m))\b")
_WORD = re.compile(r"n't\b|'(?:s|re|ve|ll|d|m)\b|\w+(?:[-.,]\w+)*")


def split_words(sentence: str) -> list[str]:
    """Words in lower case without punctuation, "isn't" as "is" and "n't".

    CLIP4IDC's evaluation applies the Penn Treebank's rules by Stanford's Java program and then strips punctuation. This
    function returns the same words for plain English sentences without Java.

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
        """Count of numbers."""
        return len(self.words) + 2

    def numbers(self, sentences: Sequence[str]) -> Indices:
        """Rows `[sentences, 1 + longest]` of word numbers, each closed by `EDGE`, without unknown words."""
        known = {word: number for number, word in enumerate(self.words, start=2)}
        rows = [[*[known[word] for word in split_words(one) if word in known][:MAX_WORDS], EDGE] for one in sentences]
        padded = np.full((len(rows), max(map(len, rows), default=1)), PAD, dtype=np.int64)
        for row, numbers in enumerate(rows):
            padded[row, : len(numbers)] = numbers
        return padded

    def sentence(self, numbers: Iterable[int]) -> str:
        """The words up to the first number that is not a word, separated by spaces."""
        words: list[str] = []
        for number in numbers:
            if number in (PAD, EDGE):
                break
            words.append(self.words[number - 2])
        return " ".join(words)
