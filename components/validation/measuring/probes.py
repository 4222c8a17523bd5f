"""What the measuring of texts needs from outside: a tokenizer, a sentence model, evaluation texts, a world's facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from components.core.errors import InputError
from components.core.records import (
    CAPTION_QUERIES,
    COMPARISONS,
    HALF_TRUTHS,
    NEGATION_QUERIES,
    PARAPHRASE_QUERIES,
    SWAPS,
    TEXT_PAIRS,
)
from components.core.settings import Settings
from components.core.words import normalised
from components.data.leaks.report import FOLDER, find_text, read_texts
from components.encoders.adapter.tokens import token_lengths
from components.validation.checks.similarity import SentenceVectors
from components.validation.world import checks as world_checks

_SENTENCES = (
    ("paraphrase_queries", PARAPHRASE_QUERIES, ("query", "paraphrase")),
    ("swaps", SWAPS, ("true_caption", "false_caption")),
    ("negations", NEGATION_QUERIES, ("caption", "negation", "paraphrase")),
    ("comparisons", COMPARISONS, ("true_difference", "false_difference")),
    ("half_truths", HALF_TRUTHS, ("truth", "half_truth", "full_truth")),
    ("text_pairs", TEXT_PAIRS, ("sentence", "other_sentence")),
)


def evaluation_sentences(folder: Path) -> frozenset[str]:
    """Every evaluation sentence in `folder`, normalised; a source without benchmark tables has none.

    Alt-texts of the test split are left out: two pictures may well carry the same one.

    Raises:
        InputError: a table is damaged.
    """
    found: set[str] = set()
    for name, table, columns in _SENTENCES:
        path = folder / f"{name}.parquet"
        if path.exists():
            rows = table.read(path, columns)
            found.update(normalised(text) for column in columns for text in rows.column(column).to_pylist())
    path = folder / "caption_queries.parquet"
    if path.exists():
        captions = CAPTION_QUERIES.read(path)
        plain = captions.filter(pc.equal(captions.column("register"), "plain"))
        found.update(normalised(text) for text in plain.column("text").to_pylist())
    return frozenset(found)


@dataclass(frozen=True)
class FactChecks:
    """What a world that knows its facts can say about a text; facts are given as JSON.

    Attributes:
        find_fault: the first fact that a text gets wrong, omits or adds.
        tells_another: whether a text says all about the same objects, and something of it is false.
        find_stranger: what a text speaks of that none of some pictures shows.
        names: whether a text names an object of the first facts that the second do not have.
        find_part_fault: the first fact that a text, which may leave out any, gets wrong or adds; `nothing` where it
            tells none.
    """

    find_fault: Callable[[str, str], str | None]
    tells_another: Callable[[str, str], bool]
    find_stranger: Callable[[str, Sequence[str]], str | None]
    names: Callable[[str, str, str], bool]
    find_part_fault: Callable[[str, str], str | None]


@dataclass(frozen=True)
class Probes:
    """What the measuring of texts needs from outside.

    Attributes:
        token_lengths: tokens of each text before it is cut, start and end token included.
        similarities: cosine of each text with the one at the same place in the second list.
        find_leak: how a text gives evaluation away, or None.
        facts: checks against the pictures' facts, or None where there are none.
    """

    token_lengths: Callable[[Sequence[str]], npt.NDArray[np.int64]]
    similarities: Callable[[Sequence[str], Sequence[str]], npt.NDArray[np.float64]]
    find_leak: Callable[[str], str | None]
    facts: FactChecks | None


def find_probes(settings: Settings, evaluation: Path, leaks: Path = FOLDER) -> Probes:
    """The probes that fit the source: only the embedded world can check facts, frames and its last tier of words.

    Args:
        evaluation: tables of this project's own benchmarks.
        leaks: what stage `prepare` knows of published test sets.

    Raises:
        InputError: facts are to be checked where there are none.
    """
    sentences, published = evaluation_sentences(evaluation), read_texts(leaks)
    embedded = settings.prepare.source == "embedded"
    if settings.validation.check_facts and not embedded:
        raise InputError("params.yaml: validate.check_facts needs prepare.source 'embedded': set it to false")

    def find_leak(text: str) -> str | None:
        if normalised(text) in sentences:
            return "sentence"
        if (test_set := find_text(text, published)) is not None:
            return f"published_{test_set}"
        return world_checks.find_leak(text) if embedded else None

    facts = _world_facts() if settings.validation.check_facts else None
    return Probes(token_lengths, SentenceVectors().similarities, find_leak, facts)


def _world_facts() -> FactChecks:
    checks = world_checks
    return FactChecks(
        checks.find_fault, checks.tells_another, checks.find_stranger, checks.names, checks.find_part_fault
    )
