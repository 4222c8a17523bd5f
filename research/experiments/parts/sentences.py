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
from typing import Any

import numpy as np

from components.core.compute.metrics import Indices, Reals
from components.core.system.errors import InputError
from components.data.test_sets.pictures import LazyPicture

MAX_WORDS = 32
"""Maximum number of words of a sentence (CLIP4IDC's `max_words`)."""
PAD, EDGE = 0, 1
"""Numbers that are not words: padding, and the mark before the first word and after the last."""
_ENDINGS = re.compile(r"(?<=\w)(n't|'(?:s|re|ve|ll|d|m))\b")
_WORD = re.compile(r"n't\b|'(?:s|re|ve|ll|d|m)\b|\w+(?:[-.,]\w+)*")


@dataclass(frozen=True)
class PicturePair:
    """Two pictures and sentences about new, missing or changed things in the second."""

    before: LazyPicture
    after: LazyPicture
    sentences: tuple[str, ...]


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


@dataclass(frozen=True)
class CaptionScores:
    """Scores of the whole corpus, or of each caption `[captions]`.

    BLEU of up to four words in a row with the closest reference length, ROUGE-L with beta 1.2, CIDEr-D from 0 to 10
    with word counts of these references, METEOR 1.5, None without Java.
    """

    bleu_4: float
    rouge_l: Reals
    cider: Reals
    meteor: float | None


def caption_scores(captions: Sequence[str], references: Sequence[Sequence[str]]) -> CaptionScores:
    """Score one caption for each pair; captions and references are words of `split_words` with a space between."""
    bleu, rouge, cider = scorers()
    written = {row: [caption] for row, caption in enumerate(captions)}
    wanted = {row: list(sentences) for row, sentences in enumerate(references)}
    return CaptionScores(
        bleu_4=float(bleu(4).compute_score(wanted, written, verbose=0)[0][3]),
        rouge_l=np.asarray(rouge().compute_score(wanted, written)[1], dtype=np.float64),
        cider=np.asarray(cider().compute_score(wanted, written)[1], dtype=np.float64),
        meteor=_meteor(wanted, written) if has_java() else None,
    )


def has_java() -> bool:
    """Whether METEOR can be computed."""
    return shutil.which("java") is not None


def scorers() -> tuple[Any, Any, Any]:
    """BLEU, ROUGE-L and CIDEr-D."""
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    return Bleu, Rouge, Cider


def _meteor(wanted: dict[int, list[str]], written: dict[int, list[str]]) -> float:
    from pycocoevalcap.meteor.meteor import Meteor

    program = Meteor()
    try:
        score: float = program.compute_score(wanted, written)[0]
    except (OSError, ValueError) as error:
        # The program still holds its lock, and its destructor would wait for it forever; pending input is lost.
        program.lock.release()
        with suppress(OSError):
            program.meteor_p.stdin.close()
        raise InputError(
            f"METEOR's Java program ended without a score ({error}): try `java -version`, or take Java out of PATH"
        ) from None
    return score
