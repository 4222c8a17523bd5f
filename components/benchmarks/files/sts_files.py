"""Sentence pairs with human scores, in the files of the STS tasks, of STS-B and of SICK."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from components.benchmarks.encoding.published_context import PublishedContext
from components.core.errors import InputError
from components.core.metrics import Reals

_NAMED = 3
_SICK_HEADER = ["pair_ID", "sentence_A", "sentence_B", "relatedness_score"]


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs.

    Attributes:
        first, second: their sentences, words separated by single spaces.
        gold: how similar people found them, from 0 to 5 `[pairs]`.
    """

    first: list[str]
    second: list[str]
    gold: Reals


def senteval_pairs(context: PublishedContext, folder: str, subset: str) -> Pairs:
    """One subset of a year in SentEval's layout: sentences in `STS.input.<subset>.txt`, scores in `STS.gs...`.

    Pairs without a score are left out, as they were never annotated.

    Raises:
        InputError: the files differ in length or are damaged, or a row is bad and may not be left out.
    """
    path, gold_path = f"{folder}/STS.input.{subset}.txt", f"{folder}/STS.gs.{subset}.txt"
    sentences, gold = _lines(context, path), _lines(context, gold_path)
    if len(sentences) != len(gold):
        raise InputError(
            f"{context.folder / path} has {len(sentences):,} lines, {gold_path} has {len(gold):,}: fetch both again"
        )
    rows = [[score, *line.split("\t")[:2]] for score, line in zip(gold, sentences, strict=True) if score.strip()]
    return _pairs(context, path, rows)


def tsv_pairs(context: PublishedContext, path: str) -> Pairs:
    """Pairs in one file without header: score, first and second sentence, separated by tabs; no quoting.

    Raises:
        InputError: the file is damaged, or a row is bad and may not be left out.
    """
    rows = [line.split("\t") for line in _lines(context, path)]
    return _pairs(context, path, [row for row in rows if row[0].strip()])


def sts_benchmark_pairs(context: PublishedContext, path: str) -> Pairs:
    """Pairs of STS-B, whose `.csv` is separated by tabs and not quoted: score and sentences in columns 4 to 6 (from 0).

    Raises:
        InputError: the file is damaged, or a row is bad and may not be left out.
    """
    return _pairs(context, path, [line.split("\t")[4:7] for line in _lines(context, path)])


def sick_pairs(context: PublishedContext, path: str) -> Pairs:
    """Pairs of SICK: a header, then id, two sentences and the relatedness, separated by tabs.

    Raises:
        InputError: the header is that of another file (`SICK.txt` has the label in place of the score), the file is
            damaged, or a row is bad and may not be left out.
    """
    header, *lines = _lines(context, path)
    if header.split("\t")[:4] != _SICK_HEADER:
        raise InputError(f"{context.folder / path} does not begin with {' '.join(_SICK_HEADER)}: fetch that file")
    fields = (line.split("\t")[1:4] for line in lines)
    return _pairs(context, path, [[*row[2:], *row[:2]] for row in fields])


def _lines(context: PublishedContext, path: str) -> list[str]:
    # Not `splitlines`: sentences may hold characters such as U+0085 that it takes for the end of a line.
    try:
        return (context.folder / path).read_text("utf-8-sig").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{context.folder / path} is damaged ({error}): fetch it again") from None
    except OSError:
        raise InputError(f"{context.folder / path} cannot be read: put it there") from None


def _pairs(context: PublishedContext, path: str, rows: Sequence[Sequence[str]]) -> Pairs:
    """Those of `rows`, each score, first and second sentence, that are whole."""
    scores = [_score(row[0]) if len(row) >= 3 else None for row in rows]
    bad = [number for number, score in enumerate(scores) if score is None]
    if bad:
        named = ", ".join(map(str, bad[:_NAMED])) + (", ..." if len(bad) > _NAMED else "")
        context.amiss(f"{path}: {len(bad)} rows are not two sentences and a score from 0 to 5 (row {named}, from 0)")
    good = [(score, row[1], row[2]) for score, row in zip(scores, rows, strict=True) if score is not None]
    return Pairs(
        [_words(first) for _, first, _ in good],
        [_words(second) for _, _, second in good],
        np.array([score for score, _, _ in good], dtype=np.float64),
    )


def _score(text: str) -> float | None:
    try:
        score = float(text)
    except ValueError:
        return None
    return score if 0 <= score <= 5 else None


def _words(sentence: str) -> str:
    # SimCSE's SentEval splits at any white space and joins the words again before it asks the encoder.
    return " ".join(sentence.split())
