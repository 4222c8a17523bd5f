"""Sentences about pairs of pictures: words, their numbers, and scores of captions by pycocoevalcap.

Image captioning papers and CLIP4IDC's released code use that package. BLEU, ROUGE-L and CIDEr-D are plain Python;
METEOR is its authors' Java program, which comes with the package; without Java it is skipped.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile, zip_longest
from typing import Any

import numpy as np

from components.core.compute.metrics import Indices
from components.core.system.errors import InputError
from components.data.test_sets.files import LazyPicture

PicturePair = tuple[LazyPicture, LazyPicture, list[str]]
"""Two pictures, and sentences about new, missing or changed things in the second."""
MAX_WORDS = 32
"""Maximum number of words of a sentence (CLIP4IDC's `max_words`)."""
PAD, EDGE = 0, 1
"""Numbers that are not words: padding, and the mark before the first word and after the last."""
_ENDINGS = re.compile(r"(?<=\w)(n't|'(?:s|re|ve|ll|d|m))\b")
_WORD = re.compile(r"n't\b|'(?:s|re|ve|ll|d|m)\b|\w+(?:[-.,]\w+)*")


def split_words(sentence: str) -> list[str]:
    """Words in lower case without punctuation, "isn't" as "is" and "n't".

    CLIP4IDC's evaluation has Stanford's Java program split by the Penn Treebank's rules and strips punctuation; of
    plain English sentences this gives the same words without Java.
    """
    plain = sentence.lower().replace("\u2019", "'").replace("cannot", "can not")
    return _WORD.findall(_ENDINGS.sub(r" \1", plain))


@dataclass(frozen=True)
class Vocabulary:
    """The words that a captioner can write, in alphabetical order; the number of the first is 2."""

    words: tuple[str, ...]

    @staticmethod
    def of(sentences: Iterable[str]) -> Vocabulary:
        """All words of `sentences`."""
        return Vocabulary(tuple(sorted({word for sentence in sentences for word in split_words(sentence)})))

    def numbers(self, sentences: Sequence[str]) -> Indices:
        """Rows `[sentences, 1 + longest]` of word numbers, each closed by `EDGE`, without unknown words."""
        known = {word: number for number, word in enumerate(self.words, start=2)}
        rows = [[*[known[word] for word in split_words(one) if word in known][:MAX_WORDS], EDGE] for one in sentences]
        return np.array(list(zip_longest(*rows, fillvalue=PAD)), dtype=np.int64).T

    def sentence(self, numbers: Iterable[int]) -> str:
        """The words up to the first number that is not a word, separated by spaces."""
        written = takewhile(lambda number: number not in (PAD, EDGE), numbers)
        return " ".join(self.words[number - 2] for number in written)


def caption_scores(captions: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, Any]:
    """BLEU-4 and METEOR 1.5 of the corpus, ROUGE-L and CIDEr-D of each caption `[captions]`; no METEOR without Java.

    There is one caption for each pair; captions and references are words of `split_words` with a space between. CIDEr-D
    is from 0 to 10, with word counts of these references; ROUGE-L has beta 1.2.
    """
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.meteor.meteor import Meteor
    from pycocoevalcap.rouge.rouge import Rouge

    written = {row: [caption] for row, caption in enumerate(captions)}
    wanted = {row: list(sentences) for row, sentences in enumerate(references)}
    scores = {
        "bleu_4": float(Bleu(4).compute_score(wanted, written, verbose=0)[0][3]),
        "rouge_l": np.asarray(Rouge().compute_score(wanted, written)[1], dtype=np.float64),
        "cider": np.asarray(Cider().compute_score(wanted, written)[1], dtype=np.float64),
    }
    if shutil.which("java") is None:
        return scores
    program = Meteor()
    try:
        return scores | {"meteor": float(program.compute_score(wanted, written)[0])}
    except (OSError, ValueError) as error:
        # The program still holds its lock, and its destructor would wait for it forever; pending input is lost.
        program.lock.release()
        with suppress(OSError):
            program.meteor_p.stdin.close()
        raise InputError(
            f"METEOR's Java program ended without a score ({error}): try `java -version`, or take Java out of PATH"
        ) from None
